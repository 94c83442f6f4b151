"""Brokers under test: starting, observing and stopping them. Each has a directory of its own and one CPU core."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.connection import settle
from benchmarks.wire import Wire
from tests.postgres import drop

#: seconds until a broker is ready, at most: a busy machine needs many
START_SECONDS = 120.0
#: seconds until a broker uses no processor time, at most
_QUIET_SECONDS = 30.0
STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.15
_QUIET_LOOKS = 4
_IDLE = 0.02  # a broker that used less processor time (seconds) between two checks is idle
REPOSITORY = Path(__file__).resolve().parent.parent


class Unavailable(Exception):
    """This broker cannot be started here. The text tells the reason."""


@dataclass(frozen=True)
class Site:
    """The surroundings of brokers: their core, the parent of their directories, extra arguments."""

    broker_cpu: int | None
    generator_cpu: int | None
    directory: str | None
    wire: Wire
    holdfast_args: Sequence[str] = ()
    postgres: bool = False

    @classmethod
    def here(cls, directory: str | None, wire: Wire, holdfast_args: str = "", postgres: bool = False) -> Site:
        """The first two cores of this process: one for the broker, one for the generator."""
        cores = sorted(os.sched_getaffinity(0))
        broker, generator = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
        return cls(broker, generator, directory, wire, shlex.split(holdfast_args), postgres)

    def pin_generator(self) -> None:
        """Move this process to the generator's core."""
        if self.generator_cpu is not None:
            os.sched_setaffinity(0, {self.generator_cpu})


class Broker:
    """A broker with a directory of its own: a process that can be ended and started again with its stored data."""

    def __init__(self, name: str, site: Site, directory: Path, port: int, command: Sequence[str]) -> None:
        self.name = name
        self.site = site
        self.directory = directory
        self.port = port
        self.device_port = port  # where the devices of a fleet connect
        self.retained = 0  # the topics with the numbers 0 to this one, exclusive, are retained
        self.postgres: str | None = None  # the URL of its database
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def wire(self) -> Wire:
        """The packets of its protocol version."""
        return self.site.wire

    @property
    def process_id(self) -> int:
        """The id of the running process. Raises Unavailable if it was not started."""
        return self._running().pid

    @property
    def log_size(self) -> int:
        """The bytes that the process has written to its standard output."""
        return (self.directory / "log").stat().st_size

    @property
    def options(self) -> Sequence[str]:
        """The options of `twistd holdfast`. A tool with the same options works on the same data."""
        return self._command[self._command.index("holdfast") + 1 :]

    def add_options(self, *options: str) -> None:
        """Start the process with these options, too, from the next time on."""
        self._command += options

    def listen_by(self, file: Path) -> None:
        """Take the listeners from a configuration file from the next start on, not from the option ``--listen``."""
        at = self._command.index("--listen")
        self._command[at : at + 2] = ["--config", str(file)]

    def launch(self) -> None:
        """Start the process without waiting for it."""
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        if importlib.util.find_spec("holdfast") is None:  # not installed: run the checkout
            environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
        # The fork inherits the affinity, so it holds for every thread of the broker.
        before = os.sched_getaffinity(0)
        if self.site.broker_cpu is not None:
            os.sched_setaffinity(0, {self.site.broker_cpu})
        try:
            with (self.directory / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self.directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        finally:
            os.sched_setaffinity(0, before)

    def ready(self) -> None:
        """Wait until a connection is accepted. Raises Unavailable after a time limit, or if the process ends."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port), timeout=START_SECONDS).close()
                return
            status = self._running().poll()
            if status is not None:
                raise Unavailable(f"ended with status {status} while starting: {self._last_words()}")
            time.sleep(0.002)
        raise Unavailable(f"not ready after {START_SECONDS:.0f} s: {self._last_words()}")

    def settle(self) -> None:
        """Wait until the broker has finished the work of earlier runs."""
        settle(self.port, self.wire)

    def quiet(self) -> None:
        """Wait until the broker uses no processor time, or for half a minute."""
        deadline = time.monotonic() + _QUIET_SECONDS
        used, idle = 0.0, 0
        while idle < _QUIET_LOOKS and time.monotonic() < deadline:
            before, used = used, self.cpu_seconds()
            idle = idle + 1 if used - before < _IDLE else 0
            time.sleep(_LOOK_SECONDS)

    def rss_anon(self) -> float:
        """Anonymous resident memory in MiB (RssAnon: file-backed pages are not counted)."""
        return rss_anon(self._running().pid)

    def cpu_seconds(self) -> float:
        """The processor time of all threads, user and system."""
        fields = Path(f"/proc/{self._running().pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._running().kill()
        self._running().wait()

    def end(self) -> None:
        """Stop the process; its stored data stays."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def restart(self) -> None:
        """End the process, start it again, and wait until it is ready. Raises Unavailable if it does not start."""
        self.end()
        self.launch()
        self.ready()

    def stop(self) -> None:
        """Stop the process and remove its stored data."""
        try:
            self.end()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            if self.postgres is not None:
                drop(self.postgres)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise Unavailable(f"{self.name} was not started")
        return self._process

    def _last_words(self) -> str:
        return (self.directory / "log").read_text(errors="replace").strip()[-600:]


def rss_anon(process: int) -> float:
    """Return the anonymous resident memory of a process in MiB. Raises Unavailable if it has ended."""
    with suppress(FileNotFoundError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    raise Unavailable(f"process {process} has ended")
