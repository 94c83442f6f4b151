"""The commands on a sample that a new standby runs first, with a function in the place of each command."""

from __future__ import annotations

import os
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import click
import pytest

import holdfast_pipeline.cli.standby.listener as module
from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.cli.standby.listener import Listener
from holdfast_pipeline.cli.standby.place import listening_in
from holdfast_pipeline.cli.standby.rehearsal import Rehearsal, rehearses
from holdfast_pipeline.cli.standby.sample import commands_on_sample, write_sample
from holdfast_pipeline.sources.files import files_of
from tests.processes import PATIENCE

LINES = [shlex.join(arguments) for arguments in commands_on_sample()]


def until(found: Callable[[], bool]) -> bool:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not found() and time.monotonic() < deadline:
        time.sleep(0.01)
    return found()


def wait(rehearsal: Rehearsal) -> None:
    assert select.select([rehearsal.ended], [], [], PATIENCE)[0]


def noting(path: Path, status: ExitStatus = ExitStatus.FOUND) -> Callable[[], int]:
    """Return a command that notes its arguments."""

    def run() -> int:
        with path.open("a") as file:
            file.write(shlex.join(sys.argv[1:]) + "\n")
        os.write(2, b"said")
        return status

    return run


def test_all_commands_run_one_after_the_other_in_a_folder_that_is_removed(tmp_path: Path) -> None:
    """Nothing of a killed rehearsal is left in it. A status of found differences is no failure."""
    (tmp_path / "rehearsal").mkdir()
    (tmp_path / "rehearsal" / "0.html").touch()
    noted = tmp_path / "noted"
    prepared = tmp_path / "prepared"
    rehearsal = Rehearsal.begin(tmp_path, prepared.touch, noting(noted))
    assert rehearses(tmp_path)
    wait(rehearsal)
    assert noted.read_text().splitlines() == LINES
    assert not (rehearsal.folder / "0.html").exists()
    assert prepared.exists()
    rehearsal.end()
    assert not rehearses(tmp_path)


def test_the_first_failure_ends_it_and_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With what the command said, and once."""
    noted = tmp_path / "noted"
    rehearsal = Rehearsal.begin(tmp_path, lambda: None, noting(noted, ExitStatus.FAILED))
    wait(rehearsal)
    rehearsal.end()
    assert noted.read_text().splitlines() == LINES[:1]
    assert capfd.readouterr().err == f"the rehearsal has ended early: {LINES[0]}: status 1: said\n"


def test_its_end_kills_the_command_that_runs_also_while_it_is_held(tmp_path: Path) -> None:
    """Of a server that is stopped, nothing goes on."""
    noted = tmp_path / "noted"

    def run() -> int:
        noted.write_text(str(os.getpid()))
        time.sleep(2 * PATIENCE)  # it is killed before
        return 0

    rehearsal = Rehearsal.begin(tmp_path, lambda: None, run)
    assert until(lambda: noted.exists() and bool(noted.read_text()))
    rehearsal.hold()
    command = Path("/proc", noted.read_text())
    assert until(lambda: state_of(command) == "T")
    rehearsal.end()
    assert until(lambda: state_of(command) in ("", "Z"))
    assert not rehearsal.folder.exists()


def state_of(process: Path) -> str:
    """Return the letter that the system has for the state of a process; none when it is gone."""
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_it_is_held_while_a_command_runs_and_ends_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's command has the server for itself."""
    pid = tmp_path / "pid"

    def run() -> int:
        pid.write_text(str(os.getpid()))
        time.sleep(2 * PATIENCE)  # it is killed before
        return 0

    monkeypatch.setattr(module, "_status_of_command", run)
    server = subprocess.Popen(["sleep", "1000"])
    standby = Listener(listening_in(tmp_path), os.pidfd_open(server.pid))
    standby.rehearse(tmp_path)
    running = Thread(target=standby.run)
    running.start()
    try:
        assert until(lambda: pid.exists() and bool(pid.read_text()))
        command = Path("/proc", pid.read_text())
        with connection_to(tmp_path):
            assert until(lambda: state_of(command) == "T")
        # There was no request: the fork has ended.
        assert until(lambda: state_of(command) == "S")
    finally:
        server.kill()
        server.wait()
        running.join(PATIENCE)
    assert not running.is_alive()
    assert until(lambda: state_of(command) in ("", "Z"))
    assert not rehearses(tmp_path)


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a standby end before its first command."""
    monkeypatch.setattr(module, "_import_all", lambda: None)
    monkeypatch.setattr(Listener, "run", lambda _: None)


@pytest.mark.usefixtures("unused")
def test_a_standby_without_a_rehearsal_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    """Otherwise its server would seem to warm up for ever."""
    (tmp_path / "rehearsal").mkdir()
    module.listen(tmp_path, os.getpid(), rehearses=False)
    assert not rehearses(tmp_path)


@pytest.mark.usefixtures("unused")
def test_a_standby_works_without_a_rehearsal_if_there_is_no_room_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The reason is in its log."""

    def no_room() -> int:
        raise OSError("no room")

    monkeypatch.setattr("os.fork", no_room)
    module.listen(tmp_path, os.getpid(), rehearses=True)
    assert not rehearses(tmp_path)
    assert capfd.readouterr().err == "there is no rehearsal: no room\n"


def connection_to(folder: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    number = os.open(folder, os.O_PATH)
    found.connect(f"/proc/self/fd/{number}/commands")
    os.close(number)
    return found


@pytest.mark.parametrize("arguments", list(commands_on_sample()), ids=lambda arguments: arguments[0])
def test_each_command_line_is_right(arguments: tuple[str, ...]) -> None:
    """As the command itself parses it."""
    command = main.get_command(click.Context(main), arguments[0])
    assert command is not None
    command.make_context(arguments[0], list(arguments[1:]))


def test_the_sample_has_the_files_of_the_first_commands(tmp_path: Path) -> None:
    """Each is imported from where it is."""
    write_sample(tmp_path)
    imported = [arguments[1] for arguments in commands_on_sample() if arguments[0] == "import"]
    assert imported
    for name in imported:
        assert files_of(str(tmp_path / name)) == [str(tmp_path / name)]
    assert (tmp_path / "sample.toml").exists()
