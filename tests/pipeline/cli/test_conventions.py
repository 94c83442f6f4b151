"""What holds for every command of ``holdfast-pipeline``: ``--json``, exit statuses, and the modules that help needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.retained.api import Merge
from holdfast_pipeline.choices import FILE_FORMATS, MERGE_RULES
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.sources import files
from tests.commands.commands import commands_of
from tests.commands.test_conventions import HEAVY, MODULES, MOST_MODULES
from tests.processes import unmeasured

COMMANDS = dict(commands_of(main))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_json_and_refuses_an_unknown_option(path: tuple[str, ...]) -> None:
    assert "--json" in {name for parameter in COMMANDS[path].params for name in parameter.opts}
    result = CliRunner().invoke(main, [*path, "--no-such-option"])
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("asof yesterday --out x --storage sqlite:///nowhere.db", 2),
        ("asof --out x", 2),
        ("asof --out x --storage nonsense", 2),
        ("asof --out x --storage sqlite:///nowhere.db --filter a#", 2),
        ("check --rules nowhere.toml --storage sqlite:///nowhere.db", 1),
        ("report --storage sqlite:///nowhere.db", 2),
        ("report --out x --stale never --storage sqlite:///nowhere.db", 2),
        ("asof --lake nowhere --out x", 1),
        ("asof --out x --config nowhere.toml", 1),
        ("import nowhere --format ndjson --storage sqlite:///nowhere.db", 1),
        ("rollup --lake x --catalog nowhere.toml", 1),
        ("rollup --lake x --catalog nowhere.toml --every soon", 2),
        ("sync --to x", 2),
        ("sync --to x --storage sqlite:///nowhere.db", 1),
        ("report --only tree --storage sqlite:///nowhere.db", 1),
    ],
)
def test_a_wrong_command_line_differs_from_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, status: int
) -> None:
    """Either is told in one line, before Spark starts."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, call.split())
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    assert len(result.stderr.splitlines()) == 1


def test_the_choices_of_options_are_those_of_the_jobs() -> None:
    assert (*files._LINES, *files._WHOLE) == FILE_FORMATS
    assert tuple(rule.value for rule in Merge) == MERGE_RULES


def test_help_imports_almost_nothing() -> None:
    """Neither Spark nor a database."""
    calls = [f"{' '.join(path)} --help" for path in COMMANDS] + ["--help", "--version"]
    program = MODULES.replace("from holdfast.commands import main", "from holdfast_pipeline.cli.root import main")
    command = [sys.executable, "-c", program, *calls]
    said = subprocess.run(command, env=unmeasured(), check=True, capture_output=True, text=True).stdout
    lines = said.splitlines()
    assert lines[::2] == calls
    for call, modules in zip(lines[::2], map(json.loads, lines[1::2]), strict=True):
        assert not (HEAVY | {"pyspark", "pyarrow", "jinja2"}) & set(modules), call
        assert len(modules) < MOST_MODULES, call
