"""The real broker as a process, for end-to-end tests."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

TWISTD = (str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "holdfast")
HOLDFAST_RUN = (str(Path(sys.executable).parent / "holdfast"), "run")

#: seconds any single step of a process may take on a slow machine
PATIENCE = 60.0

#: Coverage's variables begin so. A process that has them is measured.
COVERAGE = "COVERAGE_PROCESS"


def unmeasured() -> dict[str, str]:
    """Return this environment without coverage's variables, for processes that it would disturb."""
    return {name: value for name, value in os.environ.items() if not name.startswith(COVERAGE)}


class BrokerProcess:
    """A broker on a free port, with its data in ``directory``. ``program`` is the command that starts it.

    It has no API over HTTP, unless ``admin`` names its endpoint; None is the one in the configuration.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        listen: bool = True,
        admin: str | None = "",
        program: Sequence[str] = TWISTD,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.options = options
        self.listen = listen
        self.admin = admin
        self._program = tuple(program)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self.errors = ""

    def launch(self) -> None:
        """Start the process without waiting for it."""
        command = [*self._program, "--data-dir", str(self.directory / "data")]
        if self.listen:
            command += ["--listen", "tcp:0:interface=127.0.0.1"]
        if self.admin is not None:
            command.append(f"--admin={self.admin}")
        self._process = subprocess.Popen(
            [*command, *self.options],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        self.lines = []
        self._queue = queue.Queue()
        threading.Thread(target=self._read, args=(self._process, self._queue), daemon=True).start()

    def _read(self, process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    def start(self) -> BrokerProcess:
        """Start and wait until SUBSCRIBE works."""
        self.launch()
        self.wait_for("^ready$")
        return self

    def wait_for(self, pattern: str) -> str:
        """Return the first line of stdout that matches, waiting for it."""
        deadline = time.monotonic() + PATIENCE
        for line in self.lines:
            if re.search(pattern, line):
                return line
        while True:
            line_or_end = self._queue.get(timeout=max(0.1, deadline - time.monotonic()))
            if line_or_end is None:
                self._queue.put(None)
                _, errors = self.wait()
                raise AssertionError(f"the broker ended: {errors}\n" + "\n".join(self.lines))
            self.lines.append(line_or_end)
            if re.search(pattern, line_or_end):
                return line_or_end

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return int(self.wait_for(r"^listening ").rsplit(":", 1)[1])

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self.wait()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return exit status and stderr."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Wait for the end; return exit status and stderr."""
        process = self._process
        assert process is not None
        assert process.stderr is not None
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        if not process.stderr.closed:
            self.errors = process.stderr.read()
            process.stderr.close()
        while (line := self._queue.get(timeout=PATIENCE)) is not None:
            self.lines.append(line)
        self._queue.put(None)
        if process.stdout is not None:
            process.stdout.close()
        return status, self.errors

    def end(self) -> None:
        """Kill the process if it still runs."""
        if self.runs:
            assert self._process is not None
            self._process.kill()
        if self._process is not None:
            self.wait()


@contextlib.contextmanager
def notified() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the address of a service manager, and the function that waits for the next state that it is told.

    It reads at once, as systemd does: the kernel keeps ten datagrams, and a broker does not wait to tell one more.
    """
    told: queue.Queue[str] = queue.Queue()

    def read() -> None:
        while state := manager.recv(4096):
            told.put(state.decode())

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = f"{folder}/notify"  # a short path: a socket's path has at most 107 bytes
        manager.bind(address)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield address, lambda: told.get(timeout=PATIENCE)
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", address)
            reader.join()


def lasting_port() -> int:
    """Return a free port for a broker that is started again on the same port.

    The port is outside the range of outgoing connections. Otherwise a client that connects while the broker is away
    could get the same port as its own, and connect to itself.
    """
    while True:
        port = random.randrange(10_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
