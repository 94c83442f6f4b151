"""The server: a Spark process that stays, so that the commands of its user answer at once.

PySpark starts it and notes it in a file (:mod:`holdfast.pipeline.server_files`): a Spark Connect server at 127.0.0.1,
which asks for a token. A command uses the server if its process lives and listens. Otherwise it starts Spark for
itself, as without a server.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.errors import PySparkException

from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.server_files import chooses_another_spark, server_folder
from holdfast.pipeline.spark.java import java_problem
from holdfast.pipeline.spark.java_classes import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Set while a command uses the server: the value that SPARK_REMOTE has then.
_USED = "HOLDFAST_SPARK_SERVER"
#: Packages of Spark Connect's client.
_PACKAGES = ("grpc", "grpc_status", "pandas")
#: Nothing listens for other hosts. All commands load the same classes: without isolation, Java compiles them once.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.artifact.isolation.enabled": "false",
}
#: Seconds for the server to answer a connection, and to end after SIGTERM.
_ANSWERS, _ENDS = 0.5, 20.0
#: Attempts to reach a server that does not answer any more: 4 s together.
_RETRIES = 4


@frozen
class Server:
    """A running server: its port at 127.0.0.1, the id of its process, and the folder of its log."""

    port: int
    pid: int
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
        found = Server(int(noted["port"]), int(noted["pid"]), str(folder / "logs"), str(noted["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if _is_server(found.pid) and _listens(found.port) else None


def start_server(environment: MutableMapping[str, str], memory: str | None = None) -> Server:
    """Start a server, unless one runs. ``memory`` is that of its Java, such as "2g" (by default Spark's setting).

    Changes the environment, which the server inherits. Raises :class:`PipelineError`.
    """
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise PipelineError(f"the server needs {', '.join(missing)}: pip install 'holdfast[connect]'")
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer  # needs these packages

    problem = java_problem(environment)
    if problem is not None:
        raise PipelineError(problem)
    folder = server_folder(environment)
    if folder is None:
        raise PipelineError("there is no folder for the server's files: set HOME or XDG_CACHE_HOME to one of your own")
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    # Properties of Java, so that a user's own settings win.
    properties = " ".join(f"-D{name}={value}" for name, value in _SETTINGS.items())
    options = (java_options(environment, os.getpid()), properties, environment.get("SPARK_SUBMIT_OPTS", ""))
    environment["SPARK_SUBMIT_OPTS"] = " ".join(options)
    if memory is not None:
        environment["SPARK_DRIVER_MEMORY"] = memory
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with Discovery(str(folder / "server.json")) as discovery:
            LocalConnectServer(discovery).reuse_or_start("local[*]", {})
    except (OSError, PySparkException) as error:
        raise PipelineError(f"the server did not start: {error}") from error
    found = running_server(environment)
    if found is None:
        raise PipelineError(f"the server has ended at once; its log is in {folder / 'logs'}")
    return found


def stop_server(environment: Mapping[str, str]) -> Server | None:
    """Stop the running server, and return it; None if there is none. Jobs that it works on fail."""
    found = running_server(environment)
    if found is None:
        return None
    _signal(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + _ENDS
    while _is_server(found.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    if _is_server(found.pid):
        _signal(found.pid, signal.SIGKILL)
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


def _is_server(pid: int) -> bool:
    """Tell whether this process is a Spark Connect server. The process of a killed server may have another's id now."""
    try:
        return b"SparkConnectServer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(_ANSWERS)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(pid, number)
