"""``format("retained_file_check")``: asks tasks whether they can read a file of this host.

Executors on other hosts see other files. The options are ``file``; ``content``, its first bytes in hexadecimal; and
``tasks``, the number of tasks that read it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

_SCHEMA = StructType([StructField("host", StringType()), StructField("problem", StringType())])
_ARROW = pa.schema([("host", pa.string()), ("problem", pa.string())])
#: Only this many bytes of the file are compared.
HEAD = 64


class FileCheckSource(DataSource):
    """One row per task: its host, and the problem with the file there, or null."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained_file_check"

    def schema(self) -> StructType:
        """Return the columns."""
        return _SCHEMA

    def reader(self, schema: StructType) -> FileCheckReader:
        """Return the reader of the file."""
        options = self.options
        return FileCheckReader(options["file"], bytes.fromhex(options["content"]), int(options["tasks"]))


class FileCheckReader(DataSourceReader):
    """Reads the file in each task."""

    def __init__(self, file: str, content: bytes, tasks: int) -> None:
        self._file = file
        self._content = content
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the file, and compare it."""
        problem = None
        try:
            if head_of(self._file) != self._content:
                problem = "another file is there"
        except OSError as error:
            problem = error.strerror or str(error)
        yield pa.RecordBatch.from_pylist([{"host": socket.gethostname(), "problem": problem}], schema=_ARROW)


def head_of(file: str) -> bytes:
    """Return the first bytes of a file."""
    with open(file, "rb") as opened:
        return opened.read(HEAD)
