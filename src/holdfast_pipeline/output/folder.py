"""Folders that jobs write to, and which of them may be overwritten."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyarrow import fs

from holdfast_pipeline.choices import DATA, MANIFEST
from holdfast_pipeline.errors import PipelineError

#: Hadoop has several URI schemes for S3, Arrow has one.
_NAMED_BY_HADOOP = re.compile(r"^s3[an]://")


def usual_uri(uri: str) -> str:
    """Return a URI as Arrow and Delta name it; a local path stays as it is."""
    return _NAMED_BY_HADOOP.sub("s3://", uri)


class Folder:
    """A folder in which jobs read and write files of their own. Raises :class:`PipelineError` if it cannot be used."""

    def __init__(self, path: str) -> None:
        if not path.strip():  # as from an unset shell variable: it would be the current folder
            raise PipelineError("name a folder: this name is empty")
        local = "://" not in path
        self.uri = str(Path(path).absolute()) if local else path.rstrip("/")
        if local and Path(self.uri).exists() and not Path(self.uri).is_dir():
            raise PipelineError(f"{path}: is a file; name a folder")
        try:
            if local:
                self._system, self._path = fs.LocalFileSystem(), self.uri
            else:
                self._system, self._path = fs.FileSystem.from_uri(usual_uri(self.uri))
        except (ValueError, OSError) as error:
            raise PipelineError(f"{path}: is not a folder that can be written ({_reason(error)})") from error

    def require_writable(self) -> None:
        """Raise :class:`PipelineError` if no file can be written to it. A trial file is removed again."""
        name = f".holdfast-{secrets.token_hex(8)}"
        fresh = not self.has("")
        self.write(name, b"")
        self.remove(name)
        if fresh:
            self.remove("")

    def make(self) -> None:
        """Make it, unless it exists."""
        self._explained(lambda: self._system.create_dir(self._path, recursive=True))

    def below(self, name: str) -> str:
        """Return the path of a file or folder in it, for Spark."""
        return f"{self.uri}/{name}"

    def has(self, name: str) -> bool:
        """Tell whether a file or folder exists in it."""
        return bool(self._explained(lambda: self._info(name).type is not fs.FileType.NotFound))

    def names(self, name: str) -> list[str]:
        """Return the names in one of its subfolders; none if the subfolder does not exist."""
        found = self._explained(
            lambda: self._system.get_file_info(fs.FileSelector(f"{self._path}/{name}", allow_not_found=True))
        )
        return [info.base_name for info in found]

    def old_files(self, before: float) -> list[str]:
        """Return the paths of the files in it and its subfolders that were written before a time (Unix seconds)."""
        found = self._explained(
            lambda: self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True, recursive=True))
        )
        return [
            info.path.removeprefix(f"{self._path}/")
            for info in found
            if info.type is fs.FileType.File and info.mtime is not None and info.mtime.timestamp() < before
        ]

    def schema_of(self, name: str) -> Any:
        """Return the columns of a Parquet file."""
        from pyarrow import parquet  # late: most commands read none here

        return self._explained(lambda: parquet.read_schema(f"{self._path}/{name}", filesystem=self._system))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            with self._system.open_input_stream(f"{self._path}/{name}") as stream:
                return bytes(stream.read())
        except OSError as error:
            raise PipelineError(f"{self.below(name)}: cannot be read ({_reason(error)})") from error

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file; None if it does not exist."""
        if not self.has(name):
            return None
        try:
            return json.loads(self.read(name))
        except ValueError as error:
            raise PipelineError(f"{self.below(name)}: cannot be read ({error})") from error

    def sync(self) -> None:
        """Wait until all files in a local folder are on the disk; other file systems do that themselves."""
        if isinstance(self._system, fs.LocalFileSystem):
            os.sync()  # neither Spark nor Delta syncs its files

    def write_json(self, name: str, content: object) -> None:
        """Write a JSON file, as :meth:`write` does."""
        data = json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"
        self.write(name, data)

    def write(self, name: str, data: bytes) -> None:
        """Write a file. A reader sees the whole file or none, because it gets its name last."""

        def write() -> None:
            self._system.create_dir(self._path, recursive=True)
            unfinished = f"{self._path}/.{name}.partial"
            with self._system.open_output_stream(unfinished) as stream:
                stream.write(data)
            self._system.move(unfinished, f"{self._path}/{name}")

        self._explained(write)

    def rename(self, name: str, new: str) -> None:
        """Give a file another name."""
        self._explained(lambda: self._system.move(f"{self._path}/{name}", f"{self._path}/{new}"))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        kind = self._explained(lambda: self._info(name).type)
        if kind is fs.FileType.Directory:
            self._explained(lambda: self._system.delete_dir(f"{self._path}/{name}"))
        elif kind is not fs.FileType.NotFound:
            self._explained(lambda: self._system.delete_file(f"{self._path}/{name}"))

    def _info(self, name: str) -> Any:
        return self._system.get_file_info(f"{self._path}/{name}")

    def _explained(self, operation: Any) -> Any:
        try:
            return operation()
        except OSError as error:
            raise PipelineError(f"{self.uri}: cannot be used ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    """Return the reason of an error in a few words: Arrow's text may have a hundred lines."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error).partition("\n")[0]


# The folders that a job may overwrite: empty ones, and those with the output of such a job, complete or interrupted.
#
# Spark deletes a folder that it overwrites. A user may name a wrong folder, for example the broker's, whose database
# is also in a folder ``data``.

#: Names of Spark's files, and of Delta's log beside them.
_PARTS = re.compile(r"\.?(part-|_)")


def require_overwritable(out: Folder, overwrite: bool, result: str = "result", names: Sequence[str] = (DATA,)) -> None:
    """Require that a job may overwrite these subfolders of ``out``.

    Raises :class:`PipelineError` for a complete result without ``overwrite``, and for foreign files.
    """
    require_replaceable(out, *names)
    if out.has(MANIFEST) and not overwrite:
        raise PipelineError(f"{out.uri}: holds a complete {result}; name another folder, or use --overwrite")


def begin_overwriting(out: Folder, overwrite: bool, result: str = "result", names: Sequence[str] = (DATA,)) -> None:
    """Require the same, then remove the manifest: from now on the content is incomplete."""
    require_overwritable(out, overwrite, result, names)
    out.remove(MANIFEST)


def require_replaceable(out: Folder, *names: str) -> None:
    """Raise :class:`PipelineError` if these subfolders of ``out`` have other files than Spark's."""
    out.require_writable()
    for name in names:
        for other in sorted(out.names(name), key=lambda one: (one[:1] in "._", one)):  # visible names first
            if not _PARTS.match(other):
                raise PipelineError(
                    f"{out.below(name)}: contains {other}, which would be lost or mixed up; name another folder"
                )
