"""The server: a Spark process that stays, which saves the commands of its user its start.

It is a Spark Connect server at 127.0.0.1, which asks for a token. Its process (:mod:`.server_process`) notes itself in
a file. A command uses the server if that process lives and listens. Otherwise it starts Spark for itself, as without a
server. A server belongs to a Python environment, since its workers are processes of that environment::

    ~/.cache/holdfast/server-5d1c0a9e/server.json    {"port": 37363, "token": "...", "pid": 731, "java": 733}
    ~/.cache/holdfast/server-5d1c0a9e/server.lock    held while a server starts
    ~/.cache/holdfast/server-5d1c0a9e/logs/          the log of Spark
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.spark.java import (
    cache_folder,
    choose_worker_python,
    java_options,
    java_problem,
    let_workers_find,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Variables with which a user chooses another Spark.
_CHOICES = ("SPARK_REMOTE", "MASTER", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
#: Set while a command uses the server: the value that SPARK_REMOTE has then.
_USED = "HOLDFAST_SPARK_SERVER"
#: Packages of Spark Connect's client.
_PACKAGES = ("grpc", "grpc_status", "pandas")
_PROGRAM = "holdfast_pipeline.spark.server_process"
#: The class that Java runs.
_JAVA = "org.apache.spark.deploy.SparkSubmit"
#: Properties of Java, so that a user's own settings win. Code that was compiled for many commands is kept: by default
#: 100 pieces are. Tables of commands that have ended are let go when Java collects garbage, also of an idle server.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.cleaner.periodicGC.interval": "10min",
}
#: Variables that would make PySpark use another Spark than its own.
_OTHER_SPARK = (
    "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS",
    "MASTER",
)  # fmt: skip
#: Seconds for the server to start, to answer a connection, and to end after SIGTERM.
_STARTS, _ANSWERS, _ENDS = 120.0, 0.5, 20.0
_PAUSE = 0.1
#: Attempts to reach a server that does not answer any more: 4 s together.
_RETRIES = 4


@frozen
class Server:
    """A running server: its port at 127.0.0.1, the ids of its process and of Java, and the folder of its log."""

    port: int
    pid: int
    java: int
    logs: str
    token: str

    @property
    def url(self) -> str:
        """Its address for Spark Connect."""
        return f"sc://localhost:{self.port}"


def running_server(environment: Mapping[str, str]) -> Server | None:
    """Return the running server of this user and this Python environment, None if there is none."""
    folder = server_folder(environment)
    if folder is None:
        return None
    try:
        noted = json.loads((folder / "server.json").read_text(encoding="utf-8"))
        found = Server(
            int(noted["port"]), int(noted["pid"]), int(noted["java"]), str(folder / "logs"), str(noted["token"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if _runs(found.pid, _PROGRAM) and _listens(found.port) else None


def start_server(environment: Mapping[str, str], memory: str | None = None) -> Server:
    """Start a server, unless one runs. ``memory`` is that of its Java, such as "2g" (by default Spark's setting).

    Raises :class:`PipelineError`.
    """
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise PipelineError(f"the server needs {', '.join(missing)}: pip install 'holdfast[connect]'")
    problem = java_problem(environment)
    if problem is not None:
        raise PipelineError(problem)
    folder = server_folder(environment)
    if folder is None:
        raise PipelineError("there is no folder for the server's files: set HOME or XDG_CACHE_HOME to one of your own")
    try:
        for each in (folder, folder / "logs"):
            each.mkdir(mode=0o700, exist_ok=True)
        with _locked(folder / "server.lock"):
            return running_server(environment) or _started(environment, folder, memory)
    except OSError as error:
        raise PipelineError(f"the server did not start: {error}") from error


def _started(environment: Mapping[str, str], folder: Path, memory: str | None) -> Server:
    own = {name: value for name, value in environment.items() if name not in _OTHER_SPARK}
    let_workers_find(own)
    choose_worker_python(own, is_local=True)
    own["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = secrets.token_hex(16)
    properties = " ".join(f"-D{name}={value}" for name, value in _SETTINGS.items())
    options = java_options(own, os.getpid(), is_server=True), properties, own.get("SPARK_SUBMIT_OPTS", "")
    own["SPARK_SUBMIT_OPTS"] = " ".join(options)
    if memory is not None:
        own["SPARK_DRIVER_MEMORY"] = memory
    noted, log = folder / "server.json", folder / "logs" / "server.log"
    noted.unlink(missing_ok=True)  # of a server that has ended
    with open(log, "wb") as output:
        process = subprocess.Popen(  # noqa: S603 - this Python, with the user's own folder
            [sys.executable, "-m", _PROGRAM, str(noted), str(os.getpid())],
            env=own, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        return _begun(process, environment, log)
    except BaseException:  # also a signal
        process.kill()
        process.wait()
        raise


def _begun(process: subprocess.Popen[bytes], environment: Mapping[str, str], log: Path) -> Server:
    begin = time.monotonic()
    while process.poll() is None and time.monotonic() < begin + _STARTS:
        found = running_server(environment)
        if found is not None and found.pid == process.pid:
            return found
        time.sleep(_PAUSE)
    verb = "has ended" if process.poll() is not None else "did not listen"
    raise PipelineError(f"the server did not start: it {verb} after {time.monotonic() - begin:.0f} s; its log is {log}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one command at a time start a server."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def stop_server(environment: Mapping[str, str]) -> Server | None:
    """Stop the running server, and return it; None if there is none. Jobs that it works on fail."""
    found = running_server(environment)
    if found is None:
        return None
    # Java ends with its parent, after its jobs.
    _signal(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + _ENDS
    processes = {found.pid: _PROGRAM, found.java: _JAVA}
    while any(_runs(*each) for each in processes.items()) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    for process, program in processes.items():
        if _runs(process, program):
            _signal(process, signal.SIGKILL)
    (Path(found.logs).parent / "server.json").unlink(missing_ok=True)
    return found


def use_server(environment: MutableMapping[str, str]) -> None:
    """Have PySpark use the server, if one runs and the user has not chosen another Spark."""
    if chooses_another_spark(environment):
        return
    server = running_server(environment)
    if server is not None:
        environment["SPARK_REMOTE"] = environment[_USED] = server.url
        environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = server.token


def give_up_soon(session: SparkSession) -> None:
    """Have a session fail some seconds after the end of the server. PySpark would wait for ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # needs the packages, too

    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # the failure itself tells it
    client = session.client
    client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])


def is_used(environment: Mapping[str, str]) -> bool:
    """Tell whether PySpark uses the server."""
    return _USED in environment and environment.get("SPARK_REMOTE") == environment[_USED]


def _runs(process: int, program: str) -> bool:
    """Tell whether this process runs a program. The process of a killed server may have another's id now."""
    try:
        return program.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(_ANSWERS)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(pid, number)


def server_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the server, which may not be there yet; None if there can be none."""
    folder = cache_folder(environment)
    try:
        own = f"{sys.prefix} {version('holdfast')} {version('pyspark')}"
    except PackageNotFoundError:
        return None
    return None if folder is None else folder / f"server-{sha256(own.encode()).hexdigest()[:8]}"


def chooses_another_spark(environment: Mapping[str, str]) -> bool:
    """Tell whether the user's settings choose another Spark than the server."""
    return any(environment.get(name) for name in _CHOICES)
