"""Commands that a standby runs do what they do without it, and end with the process that asked."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from attrs import frozen

from holdfast_pipeline.cli.standby import listener as module
from holdfast_pipeline.cli.standby.listener import Listener
from holdfast_pipeline.cli.standby.place import connected, listening_in
from holdfast_pipeline.cli.standby.request import receive_number
from holdfast_pipeline.cli.standby.starting import standby_process, start_standby
from holdfast_pipeline.server_files import server_folder
from tests.pipeline.commands import COMMAND, PATIENCE, ends, environment


@frozen
class Standby:
    """A standby beside a process that stands for a Spark server."""

    pid: int
    server: subprocess.Popen[bytes]
    settings: dict[str, str]


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return settings_in(tmp_path_factory.mktemp("settings"))


def settings_in(folder: Path) -> dict[str, str]:
    """Return the environment of commands with a cache of their own. Its path is too long for an address."""
    cache = folder / ("long" * 30)
    cache.mkdir()
    return {**environment(), "PYSPARK_SUBMIT_ARGS": "", "XDG_CACHE_HOME": str(cache), "COLUMNS": "80"}


def folder_in(settings: dict[str, str]) -> Path:
    folder = server_folder(settings)
    assert folder is not None
    (folder / "logs").mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standby]:
    settings = settings_in(tmp_path_factory.mktemp("standby"))
    server = subprocess.Popen(["sleep", "1000"])
    folder = folder_in(settings)
    pid = start_standby(settings, folder, server.pid)
    assert pid is not None, (folder / "logs" / "standby.log").read_text()
    assert start_standby(settings, folder, server.pid) == pid  # there is one
    try:
        yield Standby(pid, server, settings)
    finally:
        server.kill()
        server.wait()
        assert ends(pid)
    assert (folder / "logs" / "standby.log").read_text() == ""


def children(pid: int) -> set[int]:
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def run(standby: Standby, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [COMMAND, *arguments], env=standby.settings, cwd=cwd, capture_output=True, text=True, check=False,
        timeout=PATIENCE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("tree", "--depth", "x"), 2),
        (("run", "jobs.toml"), 2),
        (("run", "none.toml"), 2),
        (("tree", "--storage", "sqlite:////nowhere/holdfast.db"), 1),
    ],
)
def test_a_command_has_the_same_results(
    standby: Standby, tmp_path: Path, arguments: tuple[str, ...], status: int
) -> None:
    """Exit status, output and errors; its folder is that of the user."""
    (tmp_path / "jobs.toml").write_text("[job]\ncommand = 1\n")
    found = run(standby, *arguments, cwd=tmp_path)
    assert found == run(standby, *arguments, "--no-server", cwd=tmp_path)
    assert found[0] == status
    assert found[2]


@pytest.fixture
def waiting(standby: Standby, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that the standby runs, and that waits to open its file of jobs."""
    os.mkfifo(tmp_path / "jobs.toml")
    before = children(standby.pid)
    command = [COMMAND, "run", "jobs.toml"]
    process = subprocess.Popen(command, env=standby.settings, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not opening(children(standby.pid) - before):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def opening(pids: set[int]) -> bool:
    """Tell whether a process waits for the other end of a pipe."""
    return any("wait_for_partner" in Path(f"/proc/{pid}/wchan").read_text() for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command(waiting: subprocess.Popen[str], number: signal.Signals) -> None:
    waiting.send_signal(number)
    _, explained = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, explained) == (128 + number, f"ended by {number.name}\n")


def test_a_command_ends_with_the_process_that_asked(standby: Standby, waiting: subprocess.Popen[str]) -> None:
    running = children(standby.pid)
    waiting.kill()
    assert all(ends(pid) for pid in running)


def test_a_command_fails_when_its_process_is_killed(standby: Standby, waiting: subprocess.Popen[str]) -> None:
    """As a shell tells it."""
    (running,) = children(standby.pid)
    os.kill(running, signal.SIGKILL)
    waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 128 + signal.SIGKILL


def test_without_a_standby_commands_run_as_usual(settings: dict[str, str], tmp_path: Path) -> None:
    """Also where one has been killed, whose socket is still there."""
    with listening_in(folder_in(settings)):
        pass
    assert standby_process(settings) is None
    gone = Standby(0, subprocess.Popen(["true"]), settings)
    gone.server.wait()
    assert run(gone, "tree", "--depth", "x", cwd=tmp_path)[0] == 2


def test_other_systems_have_no_standby(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with listening_in(folder_in(settings)):
        monkeypatch.setattr("sys.platform", "darwin")
        assert connected(settings, PATIENCE) is None


def no_room() -> int:
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_installed_files", lambda _=None: {"a.py": 2}),
        ("peer", lambda _: (1, os.geteuid() + 1)),
        ("os.fork", no_room),
    ],
)
def test_a_standby_declines(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """If the installed package has changed, another user asks, or there is no room for a process."""
    reading, writing = os.pipe()
    standby = Listener(listening_in(folder_in(settings)), reading)
    client = connected(settings, PATIENCE)
    assert client is not None
    monkeypatch.setattr(f"{module.__name__}.{name}", value)
    running = Thread(target=standby.run)
    running.start()
    with client:
        assert receive_number(client) is None
    os.close(writing)  # as if the server had ended
    running.join(PATIENCE)
    assert not running.is_alive()
    os.close(reading)
