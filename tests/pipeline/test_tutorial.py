"""The commands of the tutorial work, and print the page's output."""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli.root import main
from tests.pipeline.commands import BIN
from tests.pipeline.tutorial import Shell, steps, words

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline" / "tutorial.md"


def called(arguments: list[str]) -> str:
    """Run holdfast-pipeline in this process. Only ``check`` may find errors."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == (ExitStatus.FOUND if arguments[0] == "check" else ExitStatus.DONE), result.stderr
    return result.stdout


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_every_command_of_the_tutorial_prints_the_page_s_output(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order, in an empty folder; the real output has each word of the page's output."""
    monkeypatch.chdir(tmp_path)
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
            said = "".join(map(shell.run, step.commands))
        assert words(step.output) <= words(said), step.text
