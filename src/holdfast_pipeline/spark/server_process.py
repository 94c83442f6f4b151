"""The process of the server, which notes itself in a file: ``python -m ...spark.server_process FILE STARTER``.

It starts Java with a Spark session and Spark's plugin for Spark Connect. Each ends with the other: this process waits
for Java, and Java ends when its standard input is closed. Spark's own program for a server would give each session a
class loader of its own. Java would then compile the code of every query again for each command, which takes most of the
time of a small one.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

#: Nothing listens for other hosts, and Java's own port reads no object of other users. All commands load the same
#: classes.
_OWN_SETTINGS = {
    "spark.authenticate": "true",
    "spark.master": "local[*]",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",  # any free one
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
_PLUGINS = "spark.plugins"
_CONNECT = "org.apache.spark.sql.connect.SparkConnectPlugin"


def serve(path: Path, starter: int, environment: Mapping[str, str]) -> None:
    """Start the server, note it in the file unless the process ``starter`` has ended, and wait until Java ends.

    The token of the environment is the one that clients must know. Raises :class:`OSError`.
    """
    plugins = SparkContext.getSystemProperty(_PLUGINS)  # the first call starts Java, which reads the user's settings
    token = environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
    conf = SparkConf()
    for name, value in {**_OWN_SETTINGS, "spark.connect.authenticate.token": token}.items():
        conf.set(name, value)
    others = [each for each in (plugins or "").split(",") if each and each != _CONNECT]
    conf.set(_PLUGINS, ",".join([*others, _CONNECT]))
    context = SparkContext.getOrCreate(conf)
    SparkSession(context)  # the sessions of commands begin as this one
    service = getattr(context._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")  # type: ignore[union-attr]
    port = service.__getattr__("MODULE$").localPort()
    with _other_loopback(port):
        java = context._gateway.proc  # type: ignore[union-attr]
        if os.getppid() != starter:
            return
        noted = {"pid": os.getpid(), "java": java.pid, "port": port, "token": token}
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(noted, file)
        new.replace(path)
        java.wait()


def _other_loopback(port: int) -> AbstractContextManager[object]:
    """Take the port at ::1, too, where a host has it: clients look for "localhost", and would tell the token there.

    Raises :class:`OSError` if another process has it.
    """
    found = socket.socket(socket.AF_INET6) if socket.has_ipv6 else None
    if found is None:
        return nullcontext()
    try:
        found.bind(("::1", port))
    except OSError as error:
        found.close()
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return nullcontext()
    return found


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), os.environ)
