"""The makes of brokers: their configuration in a temporary directory, and their start."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.brokers import REPOSITORY, Broker, Site, Unavailable
from tests.postgres import empty_database

_MOSQUITTO_PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_MOSQUITTO_CONF = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay true
persistence {persistence}
persistence_location {directory}/
log_type none
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _mosquitto(site: Site, directory: Path, durable: bool) -> Broker:
    program = shutil.which("mosquitto", path=_MOSQUITTO_PATHS)
    if program is None:
        raise Unavailable("mosquitto is not installed")
    port = _free_port()
    configuration = _MOSQUITTO_CONF.format(port=port, persistence="true" if durable else "false", directory=directory)
    (directory / "mosquitto.conf").write_text(configuration)
    return Broker("mosquitto", site, directory, port, [program, "-c", str(directory / "mosquitto.conf")])


def _holdfast(site: Site, directory: Path, _durable: bool) -> Broker:
    twistd = Path(sys.executable).parent / "twistd"
    if not twistd.exists():
        raise Unavailable(f"no twistd beside {sys.executable}: run with the Python Holdfast is installed for")
    port = _free_port()
    command = [str(twistd), "-n", "--pidfile=", "holdfast", "--data-dir", str(directory / "data")]
    command += ["--listen", f"tcp:{port}:interface=127.0.0.1", *site.holdfast_args]
    database = empty_database() if site.postgres else None
    if database is not None:
        command += ["--storage", database]
    broker = Broker("holdfast", site, directory, port, command)
    broker.postgres = database
    return broker


def _sink(site: Site, directory: Path, _durable: bool) -> Broker:
    port = _free_port()
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "sink.py"), str(port)]
    return Broker("sink", site, directory, port, command)


_MAKES = {"holdfast": _holdfast, "mosquitto": _mosquitto, "sink": _sink}


def start(name: str, site: Site, durable: bool = False) -> Broker:
    """Start the broker called `name`; with `durable`, it stores its data on disk if it can.

    Raises:
        Unavailable: the broker is not installed, or does not start.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=site.directory))
    broker = None
    try:
        broker = _MAKES[name](site, directory, durable)
        broker.launch()
        broker.ready()
    except BaseException:
        if broker is not None:
            broker.end()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return broker


def version(name: str) -> str:
    """The versions of the brokers and the machine, for the heading of the report."""
    if name == "mosquitto":
        program = shutil.which("mosquitto", path=_MOSQUITTO_PATHS)
        if program is None:
            return "not installed"
        lines = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout.splitlines()
        return f"{lines[0]}, limits off, not durable" if lines else "unknown version"
    return f"Python {sys.version.split()[0]}"
