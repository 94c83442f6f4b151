"""Whether what is a file here can be opened where the tasks run.

Executors on other hosts see other files. ``format("retained_reach")`` has tasks look for one: its options are ``file``
and ``content``, what is in it in hexadecimal, and ``tasks``, how many look.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

_SCHEMA = StructType([StructField("host", StringType()), StructField("problem", StringType())])
_ARROW = pa.schema([("host", pa.string()), ("problem", pa.string())])
#: Bytes of a file that are compared.
HEAD = 64


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
        return opened.read(HEAD)
