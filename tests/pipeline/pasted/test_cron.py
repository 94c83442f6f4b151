"""The crontab of the page."""

from __future__ import annotations

import fcntl
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from deltalake import DeltaTable

from holdfast.commands import main as broker
from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli.root import main
from tests.docs.pages import ROOT, blocks
from tests.pipeline.commands import BIN
from tests.pipeline.pasted.conftest import Lake
from tests.processes import unmeasured

_PAGE = ROOT / "docs" / "pipeline" / "cron.md"
_ENTRY = re.compile(r"^(?:[\d*/]+\s+){5}(?P<command>.*)$", re.MULTILINE)
_SETTING = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)
_STUB = """\
#!{python}
import sys
print("23 checks: 1 problem, 0 advice")
sys.exit({status})
"""


#: The programs of the page.
_PROGRAMS: dict[str, click.Group] = {"holdfast": broker, "holdfast-pipeline": main}


def crontab() -> tuple[dict[str, str], list[str]]:
    """Return the settings and the commands of the page."""
    (text,) = (block.text for block in blocks(_PAGE) if block.language == "cron")
    return dict(_SETTING.findall(text)), _ENTRY.findall(text)


def run(command: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command as cron does: with sh and the settings. cron mails its output."""
    given = crontab()[0] | {"OUT": str(folder), "PATH": f"{BIN}:/usr/bin:/bin"} | settings
    home = unmeasured()["HOME"]
    return subprocess.run(
        ["/bin/sh", "-c", command], env={"HOME": home, **given}, cwd=folder, text=True, check=False, capture_output=True
    )


def test_every_command_of_the_crontab_exists() -> None:
    """With its options."""
    _, commands = crontab()
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(re.split(r" > ", command)[0])
        program = next(word for word in words if word in _PROGRAMS)
        name, *arguments = words[words.index(program) + 1 :]
        with click.Context(_PROGRAMS[program]) as context:
            found = _PROGRAMS[program].get_command(context, name)
            assert found is not None
            found.make_context(name, arguments, resilient_parsing=False)


@pytest.mark.e2e
def test_a_run_of_sync_is_silent_and_one_at_a_time(lake: Lake, tmp_path: Path) -> None:
    """While another process has the lock, it does nothing. Then it makes the tables, and prints nothing to mail."""
    config = tmp_path / "holdfast.toml"
    config.write_text(f'[storage]\nurl = "{lake.url}"\n')
    (sync,) = (command for command in crontab()[1] if " sync " in command)
    with (tmp_path / "sync.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        skipped = run(sync, tmp_path, CONFIG=str(config))
    assert (skipped.returncode, skipped.stdout, skipped.stderr) == (0, "", "")
    assert not (tmp_path / "lake").exists()
    done = run(sync, tmp_path, CONFIG=str(config))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert DeltaTable(tmp_path / "lake" / "changes").to_pyarrow_table().num_rows > 0


@pytest.mark.e2e
@pytest.mark.parametrize("status", [ExitStatus.DONE, ExitStatus.FOUND])
def test_the_result_of_doctor_is_mailed_if_it_found_a_problem(tmp_path: Path, status: ExitStatus) -> None:
    stub = tmp_path / "bin" / "holdfast"
    stub.parent.mkdir()
    stub.write_text(_STUB.format(python=sys.executable, status=int(status)))
    stub.chmod(0o755)
    (doctor,) = (command for command in crontab()[1] if " doctor " in command)
    done = run(doctor, tmp_path, PATH=f"{stub.parent}:/usr/bin:/bin")
    mailed = "23 checks: 1 problem, 0 advice\n" if status is ExitStatus.FOUND else ""
    assert (done.returncode, done.stdout, done.stderr) == (0, mailed, "")
