"""``python -m holdfast.pipeline.spark.server_process FILE``: the process of the server, which notes itself in a file.

It starts Java with a Spark session and Spark's plugin for Spark Connect, and ends with it: Java ends when the pipe to
this process is closed. Spark's own program for a server would give each session a class loader of its own. Java would
then compile the code of every query again for each command, which takes most of the time of a small one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

#: Nothing listens for other hosts. All commands load the same classes.
_OWN_SETTINGS = {
    "spark.master": "local[*]",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",  # any free one
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
_PLUGINS = "spark.plugins"
_CONNECT = "org.apache.spark.sql.connect.SparkConnectPlugin"


def serve(path: Path, environment: Mapping[str, str]) -> None:
    """Start the server, note it in the file, and wait until Java ends.

    The token of the environment is the one that clients must know.
    """
    plugins = SparkContext.getSystemProperty(_PLUGINS)  # the first call starts Java, which reads the user's settings
    conf = SparkConf()
    for name, value in _OWN_SETTINGS.items():
        conf.set(name, value)
    conf.set(_PLUGINS, f"{plugins},{_CONNECT}" if plugins else _CONNECT)
    context = SparkContext.getOrCreate(conf)
    SparkSession(context)  # the sessions of commands begin as this one
    service = getattr(context._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")  # type: ignore[union-attr]
    noted = {
        "pid": os.getpid(),
        "port": service.__getattr__("MODULE$").localPort(),
        "token": environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"],
    }
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(noted, file)
    new.replace(path)
    context._gateway.proc.wait()  # type: ignore[union-attr]


if __name__ == "__main__":
    serve(Path(sys.argv[1]), os.environ)
