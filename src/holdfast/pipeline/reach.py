"""Whether what is a file here can be opened where the tasks run.

Executors on other hosts see other files. ``format("retained_reach")`` has tasks look for one: its options are ``file``
and ``content``, what is in it in hexadecimal, and ``tasks``, how many look.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from holdfast.pipeline.problem import PipelineError
from holdfast.pipeline.tables import parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = StructType([StructField("host", StringType()), StructField("problem", StringType())])
_ARROW = pa.schema([("host", pa.string()), ("problem", pa.string())])
#: Bytes of a file that are compared.
_HEAD = 64


class ReachSource(DataSource):
    """What each of some tasks says of a file."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained_reach"

    def schema(self) -> StructType:
        """Return the columns: the host, and what is wrong there."""
        return _SCHEMA

    def reader(self, schema: StructType) -> ReachReader:
        """Return what looks for the file."""
        options = self.options
        return ReachReader(options["file"], bytes.fromhex(options["content"]), int(options["tasks"]))


class ReachReader(DataSourceReader):
    """Looks for a file."""

    def __init__(self, file: str, content: bytes, tasks: int) -> None:
        self._file = file
        self._content = content
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return a part for each task."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Look for the file."""
        problem = None
        try:
            if head_of(self._file) != self._content:
                problem = "another file is there"
        except OSError as error:
            problem = error.strerror or str(error)
        yield pa.RecordBatch.from_pylist([{"host": socket.gethostname(), "problem": problem}], schema=_ARROW)


def head_of(file: str) -> bytes:
    """Return how a file begins."""
    with open(file, "rb") as opened:
        return opened.read(_HEAD)


def is_distant(master: str, environment: Mapping[str, str]) -> bool:
    """Tell whether tasks of a session may run on other hosts: any but those of the masters that are this host."""
    remote = environment.get("SPARK_REMOTE", "local") if "SPARK_LOCAL_REMOTE" not in environment else "local"
    return not (remote.startswith("local") and (master == "local" or master.startswith(("local[", "local-cluster["))))


def distant(spark: SparkSession) -> bool:
    """Tell whether tasks of a session may run on other hosts."""
    return is_distant(str(spark.conf.get("spark.master", "")), os.environ)


def require_file(spark: SparkSession, file: str, remedy: str) -> None:
    """Raise :class:`PipelineError`, with what to do, unless the tasks of a session can read a file of this host."""
    if not distant(spark):
        return
    reader = spark.read.format("retained_reach").option("file", file).option("content", head_of(file).hex())
    told = reader.option("tasks", str(parallelism(spark))).load().where("problem IS NOT NULL").limit(1).collect()
    if told:
        raise PipelineError(f"{file}: cannot be read by the executor on {told[0].host} ({told[0].problem}); {remedy}")


def require_folder(spark: SparkSession, folder: str, remedy: str) -> None:
    """Raise :class:`PipelineError`, with what to do, unless the tasks of a session see a folder of this host."""
    if "://" in folder or not distant(spark):
        return
    token = Path(folder) / f".holdfast-{secrets.token_hex(8)}"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        token.write_bytes(secrets.token_bytes(_HEAD))
        require_file(spark, str(token), remedy)
    except OSError as error:
        raise PipelineError(f"{folder}: cannot be used ({error.strerror})") from error
    finally:
        token.unlink(missing_ok=True)
