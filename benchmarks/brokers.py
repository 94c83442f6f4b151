"""Brokers under test: start, look at, stop. Each gets a temporary directory of its own and one CPU core."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.connection import settle
from benchmarks.wire import Wire
from tests.postgres import empty_database

START_SECONDS = 30.0
STOP_SECONDS = 15.0
_REPOSITORY = Path(__file__).resolve().parent.parent
_MOSQUITTO_PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_MOSQUITTO_CONF = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay true
persistence false
log_type none
"""


class Unavailable(Exception):
    """This broker cannot be started here; the text says why."""


@dataclass(frozen=True)
class Site:
    """Where brokers run and how: the core they are pinned to, the parent of their directories, extra arguments."""

    broker_cpu: int | None
    generator_cpu: int | None
    directory: str | None
    wire: Wire
    holdfast_args: Sequence[str] = ()
    postgres: bool = False

    @classmethod
    def here(cls, directory: str | None, wire: Wire, holdfast_args: str = "", postgres: bool = False) -> Site:
        """The first two cores this process may use: broker on one, generator on the other."""
        cores = sorted(os.sched_getaffinity(0))
        broker, generator = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
        return cls(broker, generator, directory, wire, shlex.split(holdfast_args), postgres)

    def pin_generator(self) -> None:
        """Move this process to the generator's core."""
        if self.generator_cpu is not None:
            os.sched_setaffinity(0, {self.generator_cpu})


class Broker:
    """A running broker process."""

    def __init__(self, name: str, site: Site, process: subprocess.Popen[bytes], directory: Path, port: int) -> None:
        self.name = name
        self.site = site
        self.process = process
        self.directory = directory
        self.port = port
        self.retained = 0  # how many topics numbered from 0 are retained here

    @property
    def wire(self) -> Wire:
        """How to talk to it."""
        return self.site.wire

    def settle(self) -> None:
        """Wait until it has nothing left of earlier runs to do."""
        settle(self.port, self.wire)

    def rss_anon(self) -> float:
        """Anonymous resident memory in MiB (RssAnon: file-backed pages are not counted)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        raise Unavailable(f"{self.name} has ended")

    def cpu_seconds(self) -> float:
        """Processor time it has used, user and system, all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the process and remove its directory."""
        try:
            _end(self.process)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _launch(
    site: Site, command: Sequence[str], directory: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    # Affinity is inherited at the fork: set here, it holds for every thread the broker will ever start.
    before = os.sched_getaffinity(0)
    if site.broker_cpu is not None:
        os.sched_setaffinity(0, {site.broker_cpu})
    try:
        with (directory / "log").open("wb") as log:
            return subprocess.Popen(
                command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
    finally:
        os.sched_setaffinity(0, before)


def _started(name: str, site: Site, command: Sequence[str], directory: Path, port: int | None) -> Broker:
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    if importlib.util.find_spec("holdfast") is None:  # not installed: run the checkout
        environment["PYTHONPATH"] = os.pathsep.join([str(_REPOSITORY / "src"), str(_REPOSITORY)])
    process = _launch(site, command, directory, environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            log = (directory / "log").read_text(errors="replace")
            if process.poll() is not None:
                raise Unavailable(f"ended with status {process.returncode} while starting: {log.strip()[-600:]}")
            if port is None:
                listening = re.search(r"listening \S+ tcp:\S*?:(\d+)", log)
                if listening and re.search(r"\bready\s*$", log, re.MULTILINE):
                    return Broker(name, site, process, directory, int(listening[1]))
            elif _accepts(port):
                return Broker(name, site, process, directory, port)
            time.sleep(0.02)
        raise Unavailable(f"not ready after {START_SECONDS:.0f} s: {log.strip()[-600:]}")
    except BaseException:
        _end(process)
        raise


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _start_mosquitto(site: Site, directory: Path) -> Broker:
    program = shutil.which("mosquitto", path=_MOSQUITTO_PATHS)
    if program is None:
        raise Unavailable("mosquitto is not installed")
    port = _free_port()
    (directory / "mosquitto.conf").write_text(_MOSQUITTO_CONF.format(port=port))
    return _started("mosquitto", site, [program, "-c", str(directory / "mosquitto.conf")], directory, port)


def _start_holdfast(site: Site, directory: Path) -> Broker:
    twistd = Path(sys.executable).parent / "twistd"
    if not twistd.exists():
        raise Unavailable(f"no twistd beside {sys.executable}: run with the Python Holdfast is installed for")
    command = [str(twistd), "-n", "--pidfile=", "holdfast", "--data-dir", str(directory / "data")]
    command += ["--listen", "tcp:0:interface=127.0.0.1", *site.holdfast_args]
    if site.postgres:
        command += ["--storage", empty_database()]
    return _started("holdfast", site, command, directory, None)


def _start_sink(site: Site, directory: Path) -> Broker:
    port = _free_port()
    command = [sys.executable, str(_REPOSITORY / "benchmarks" / "sink.py"), str(port)]
    return _started("sink", site, command, directory, port)


_STARTERS = {"holdfast": _start_holdfast, "mosquitto": _start_mosquitto, "sink": _start_sink}


def start(name: str, site: Site) -> Broker:
    """Start the broker called `name`.

    Raises:
        Unavailable: it is not installed, or did not come up.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=site.directory))
    try:
        return _STARTERS[name](site, directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def version(name: str) -> str:
    """What is being measured, for the report's heading."""
    if name == "mosquitto":
        program = shutil.which("mosquitto", path=_MOSQUITTO_PATHS)
        if program is None:
            return "not installed"
        lines = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout.splitlines()
        return f"{lines[0]}, limits off, not durable" if lines else "unknown version"
    return f"Python {sys.version.split()[0]}"
