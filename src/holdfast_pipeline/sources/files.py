"""``format("retained_files")``: messages in files of other programs; and whether tasks can read a file.

Options: ``format`` (one of ``FILE_FORMATS``) and ``files``, a JSON array of paths, which the executors must see.
Unreadable messages are rows too: their column ``problem`` gives the reason.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from holdfast.retained.api import (
    FileEntry,
    UnreadableFile,
    emqx,
    emqx_archive,
    mosquitto_db,
    mosquitto_dump,
    mosquitto_sqlite,
    ndjson,
)
from holdfast_pipeline.errors import PipelineError

#: A task reads this many bytes of a file of lines.
_PART = 64 << 20
_ROWS, _BYTES = 10_000, 8 << 20
#: The fields of a message, then its position in the files, and the problem with it.
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("payload", BinaryType()),
        StructField("qos", IntegerType()),
        StructField("client_id", StringType()),
        StructField("username", StringType()),
        StructField("stored_at", LongType()),
        StructField("expires_at", LongType()),
        StructField("properties_json", StringType()),
        StructField("revision", LongType()),
        StructField("source", StringType()),
        StructField("problem", StringType()),
    ]
)
_ARROW = {"string": pa.string(), "binary": pa.binary(), "int": pa.int32(), "bigint": pa.int64()}
_ARROW_SCHEMA = pa.schema([(field.name, _ARROW[field.dataType.simpleString()]) for field in SCHEMA.fields])
#: Formats with one message per line: large files are divided among tasks.
_LINES = {"ndjson": ndjson.messages, "emqx": emqx.messages}
#: Formats whose files one task reads as a whole.
_WHOLE = {
    "emqx-archive": emqx_archive.messages,
    "mosquitto": mosquitto_db.messages,
    "mosquitto-dump": mosquitto_dump.messages,
    "mosquitto-sqlite": mosquitto_sqlite.messages,
}
#: SQLite's files beside a database.
_BESIDE = ("-wal", "-shm", "-journal")


class FilePart(InputPartition):
    """A file, or a range of its bytes. A task reads the lines that begin in its range."""

    def __init__(self, path: str, start: int = 0, end: int | None = None) -> None:
        super().__init__((path, start))
        self.path = path
        self.start = start
        self.end = end


class FilesSource(DataSource):
    """Messages in files."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained_files"

    def schema(self) -> StructType:
        """Return all columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> FilesReader:
        """Return the reader of the files."""
        return FilesReader(self.options["format"], json.loads(self.options["files"]))


class FilesReader(DataSourceReader):
    """Reads files of one format."""

    def __init__(self, kind: str, files: Sequence[str]) -> None:
        self._kind = kind
        self._files = files

    def partitions(self) -> Sequence[InputPartition]:
        """Divide files of lines; other files are one partition each."""
        parts: list[InputPartition] = []
        for path in self._files:
            if self._kind in _LINES:
                size = Path(path).stat().st_size
                parts += [FilePart(path, start, start + _PART) for start in range(0, max(size, 1), _PART)]
            else:
                parts.append(FilePart(path))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition."""
        assert isinstance(partition, FilePart)
        rows: list[Mapping[str, Any]] = []
        size = 0
        for found in self._found(partition):
            given = {"source": f"{partition.path}, {found.place}", "problem": found.problem, **(found.fields or {})}
            row = _row(given)
            rows.append(row)
            size += len(row["payload"] or b"")
            if len(rows) == _ROWS or size > _BYTES:
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA)
                rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA)

    def _found(self, part: FilePart) -> Iterator[FileEntry]:
        path = Path(part.path)
        try:
            if self._kind in _LINES:
                yield from _LINES[self._kind](path, part.start, part.end)
            else:
                yield from _WHOLE[self._kind](path)
        except UnreadableFile as error:
            raise PipelineError(f"{path}: {error}; nothing was merged") from error
        except OSError as error:
            raise PipelineError(f"{path}: cannot be read ({error.strerror}); nothing was merged") from error


def files_of(source: str) -> list[str]:
    """Return a file, or the files in a folder, by name. Raises :class:`PipelineError`."""
    path = Path(source).absolute()
    if path.is_dir():
        found = sorted(
            str(each)
            for each in path.iterdir()
            if each.is_file() and not each.name.startswith((".", "_")) and not each.name.endswith(_BESIDE)
        )
        if not found:
            raise PipelineError(f"{source}: there is no file in this folder")
        return found
    if not path.is_file():
        raise PipelineError(f"{source}: there is no such file or folder")
    return [str(path)]


def _row(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row of a message. If a value does not fit its column, return a row with this problem instead."""
    for field in _ARROW_SCHEMA:
        value = given.get(field.name)
        if value is not None and not _fits(value, field.type):
            problem = f"{field.name}: {_shown(value)} is not a value of this field"
            return {"source": given["source"], "problem": problem, "payload": None}
    return {"payload": None, **given}


def _fits(value: Any, kind: pa.DataType) -> bool:
    if kind == pa.string():
        return isinstance(value, str) and _is_unicode(value)
    if kind == pa.binary():
        return isinstance(value, bytes)
    bits = 31 if kind == pa.int32() else 63
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits


def _shown(value: Any) -> str:
    try:
        return ascii(str(value)[:60])
    except ValueError:
        return "a number of thousands of digits"  # Python refuses to print it


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ``format("retained_file_check")``: asks tasks whether they can read a file of this host.
#
# Executors on other hosts see other files. The options are ``file``; ``content``, its first bytes in hexadecimal; and
# ``tasks``, the number of tasks that read it.

_SCHEMA = StructType([StructField("host", StringType()), StructField("problem", StringType())])
_ARROW_OF_CHECK = pa.schema([("host", pa.string()), ("problem", pa.string())])
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
        yield pa.RecordBatch.from_pylist([{"host": socket.gethostname(), "problem": problem}], schema=_ARROW_OF_CHECK)


def head_of(file: str) -> bytes:
    """Return the first bytes of a file."""
    with open(file, "rb") as opened:
        return opened.read(HEAD)
