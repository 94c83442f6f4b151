"""What other processes write does not reach the console, but for a job's progress."""

from __future__ import annotations

import subprocess
import threading

import pytest

from holdfast.pipeline.spark.console import SparkOutput, progress_in

BAR = b"\r[Stage 0:>                                                          (0 + 2) / 2]"
TWO = b"\r[Stage 0:====>      (1 + 1) / 2][Stage 2:>          (0 + 1) / 12]"
WIPED = b"\r" + b" " * 80 + b"\r"


def test_what_a_process_writes_is_kept_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """The last lines of either stream; what this process writes afterwards is shown."""
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
def test_progress_is_told_from_the_rest(written: bytes, shown: list[bytes]) -> None:
    """Bars of stages and what wipes them; no log line."""
    assert progress_in(written) == shown
