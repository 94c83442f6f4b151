"""The output of Spark's processes does not reach the console, except the progress of jobs."""

from __future__ import annotations

import subprocess
import threading

import pytest

from holdfast.pipeline.spark.console import SparkOutput, progress_in

BAR = b"\r[Stage 0:>                                                          (0 + 2) / 2]"
TWO = b"\r[Stage 0:====>      (1 + 1) / 2][Stage 2:>          (0 + 1) / 12]"
WIPED = b"\r" + b" " * 80 + b"\r"


def test_the_output_of_a_process_is_kept_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """The last lines of both streams; this process can write to the console afterwards."""
    output = SparkOutput()
    script = "echo said; echo WARNING >&2; for i in $(seq 300); do echo $i; done; echo last >&2"
    with output.captured():
        subprocess.run(["sh", "-c", script], check=True)
    for thread in threading.enumerate():
        if thread.name == "spark output":
            thread.join(60)
    print("shown")
    assert capfd.readouterr() == ("shown\n", "")
    assert output.lines[-2:] == ["300", "last"]
    assert "said" not in output.lines


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (BAR, [BAR]),
        (TWO + WIPED, [TWO, b"\r" + b" " * 80, b"\r"]),
        (BAR + b"26/11/21 14:26:52 WARN NativeCodeLoader: Unable\n", [BAR]),
        (b"26/11/21 14:26:52 WARN NativeCodeLoader: [Stage 0:>\n\tat x\n", []),
    ],
)
def test_progress_bars_are_found_in_the_output(written: bytes, shown: list[bytes]) -> None:
    """Bars and the blanks that remove them, but no log lines."""
    assert progress_in(written) == shown
