"""The output of Spark's processes does not reach the console."""

from __future__ import annotations

import subprocess
import threading

import pytest

from holdfast_pipeline.spark.process import SparkOutput


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
