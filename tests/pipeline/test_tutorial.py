"""The commands of the tutorial work, and print the page's output."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from holdfast_pipeline.cli.root import main
from tests.pipeline.commands import BIN
from tests.pipeline.tutorial import Shell, steps, words

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "pipeline" / "tutorial.md"
_MADE = 'make sample SAMPLE_ARGS="--scale 0.1"'


def called(arguments: list[str]) -> str:
    """Run holdfast-pipeline in this process."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, (arguments, result.stderr)
    return result.stdout


def sample(folder: Path) -> str:
    """Play a small day instead of the page's day."""
    command = [sys.executable, "-m", "examples.building", "--scale", "0.01", "--out", str(folder / "building")]
    return subprocess.run(command, cwd=_ROOT, text=True, check=True, capture_output=True).stdout


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_every_command_of_the_tutorial_prints_the_page_s_output(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order, on a hundredth of the data; the real output has each word of the page's output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(_ROOT / "examples")
    monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
    shell = Shell(tmp_path, "holdfast-pipeline", called)
    names: dict[str, Any] = {}
    asked = list(steps(_PAGE.read_text(encoding="utf-8")))
    assert sum(len(step.commands) for step in asked if step.language == "sh") > 8
    for step in asked:
        if step.language == "python":
            with redirect_stdout(StringIO()) as printed:
                exec(compile(step.text, str(_PAGE), "exec"), names)
            said = printed.getvalue()
        else:
            said = "".join(sample(tmp_path) if one == _MADE else shell.run(one) for one in step.commands)
        assert words(step.output) <= words(said), step.text
