"""The command as a whole: its help is quick, and missing packages are named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast_pipeline.cli.root import COMMANDS, Subcommands, main

RUN = "import sys; sys.argv = ['holdfast-pipeline', *sys.argv[1:]]; from holdfast_pipeline.cli import main; "


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run another process, which has not imported anything yet, and which no server of the developer runs."""
    command = [sys.executable, "-c", RUN + code, *arguments]
    without_server = {**os.environ, "PYSPARK_SUBMIT_ARGS": "pyspark-shell"}
    return subprocess.run(command, env=without_server, capture_output=True, text=True, check=False, timeout=120)


def test_help_imports_neither_spark_nor_a_reactor() -> None:
    """Nor anything else that takes long."""
    done = python(
        "import atexit; atexit.register(lambda: print(sorted({'pyspark', 'pyarrow', 'sqlalchemy', "
        "'twisted.internet.reactor'} & set(sys.modules)))); main()",
        "--help",
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "[]"
    for name, (_, short) in COMMANDS.items():
        assert f"{name} " in done.stdout
        assert short.split()[0] in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_describes_itself_as_the_list_does(name: str) -> None:
    """Its help has all words of its line in the list."""
    assert isinstance(main, Subcommands)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    words = re.findall(r"[\w-]+", COMMANDS[name][1].lower())
    told = (command.help or "").lower()
    assert [word for word in words if word not in told] == []


def test_an_unknown_command_is_refused() -> None:
    """With status 2, as any wrong command line."""
    result = CliRunner().invoke(main, ["exprt"])
    assert result.exit_code == 2
    assert "No such command 'exprt'" in result.stderr


@pytest.mark.parametrize("missing", ["pyspark", "py4j", "pyarrow"])
def test_a_missing_package_is_named_with_the_remedy(missing: str) -> None:
    """In one line, with status 1; --help works without the package."""
    without = f"sys.modules[{missing!r}] = None; main()"
    done = python(without, "asof", "--storage", "sqlite:////none", "--out", "none")
    told = f"{missing} is not installed; holdfast-pipeline needs: pip install 'holdfast[pipeline]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)
    assert python(without, "--help").returncode == 0


def test_the_script_for_spark_submit_is_there() -> None:
    """Only its path is printed."""
    result = CliRunner().invoke(main, ["--script"])
    assert result.exit_code == 0
    assert "main()" in Path(result.stdout.strip()).read_text()


def test_a_command_has_a_lower_priority_than_the_broker_unless_it_was_given_one() -> None:
    """A priority that the user has set is kept."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    code = (
        "import atexit, os, sys\n"
        "os.nice(int(sys.argv.pop()))\n"
        "atexit.register(lambda: print(os.getpriority(os.PRIO_PROCESS, 0)))\n"
        "main()\n"
    )
    expected = {"0": ours or 10, "3": ours + 3}
    for given, priority in expected.items():
        assert python(code, "--version", given).stdout.splitlines()[-1] == str(priority)


@pytest.mark.parametrize("name", ["archive", "audit", "compact", "export", "filters", "publish", "shapes", "tree"])
def test_a_command_of_an_earlier_version_names_its_successor(name: str) -> None:
    """In one message, whatever its options."""
    result = CliRunner().invoke(main, [name, "--storage", "x"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{name} is no command any more: holdfast" in result.stderr
