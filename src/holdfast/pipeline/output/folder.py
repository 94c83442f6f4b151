"""Folders that jobs write to: local ones, and those of any file system that Arrow and Spark both know by URI."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

from holdfast.pipeline.errors import PipelineError

#: What Hadoop's file systems for S3 are called; Arrow has one name for them.
_NAMED_BY_HADOOP = re.compile(r"^s3[an]://")


class Folder:
    """A folder for files beside those that Spark writes. Raises :class:`PipelineError` where it cannot be used."""

    def __init__(self, place: str) -> None:
        if not place.strip():
            raise PipelineError("a folder is to be named, and this name is empty")
        local = "://" not in place
        self.uri = str(Path(place).absolute()) if local else place.rstrip("/")
        if local and Path(self.uri).exists() and not Path(self.uri).is_dir():
            raise PipelineError(f"{place}: is a file; name a folder")
        try:
            if local:
                self._system, self._path = fs.LocalFileSystem(), self.uri
            else:
                self._system, self._path = fs.FileSystem.from_uri(_NAMED_BY_HADOOP.sub("s3://", self.uri))
        except (ValueError, OSError) as error:
            raise PipelineError(f"{place}: is no folder that can be written to ({_why(error)})") from error

    def require_writable(self) -> None:
        """Raise :class:`PipelineError` where no file can be written to it. Afterwards it is as it was."""
        name = f".holdfast-{secrets.token_hex(8)}"
        fresh = not self.has("")
        self.write(name, b"")
        self.remove(name)
        if fresh:
            self.remove("")

    def below(self, name: str) -> str:
        """Return what Spark calls something in it."""
        return f"{self.uri}/{name}"

    def has(self, name: str) -> bool:
        """Tell whether there is something of a name."""
        return bool(self._explained(lambda: self._info(name).type is not fs.FileType.NotFound))

    def names(self, name: str) -> list[str]:
        """Return the names of what is in a folder in it; none where there is no such folder."""
        found = self._explained(
            lambda: self._system.get_file_info(fs.FileSelector(f"{self._path}/{name}", allow_not_found=True))
        )
        return [info.base_name for info in found]

    def files(self, name: str, ending: str) -> list[tuple[str, int, int]]:
        """Return the files below a folder in it whose names end so: path, bytes, and milliseconds since the epoch.

        What begins with _ or . is left out, as Spark does.
        """
        start = f"{self._path}/{name}/"
        selected = fs.FileSelector(start, allow_not_found=True, recursive=True)
        found = []
        for info in self._explained(lambda: self._system.get_file_info(selected)):
            path = info.path.removeprefix(start)
            if info.is_file and path.endswith(ending) and not any(part[:1] in "_." for part in path.split("/")):
                found.append((path, info.size, info.mtime_ns // 1_000_000))
        return sorted(found)

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Give a file to read from anywhere in it, while the block runs."""
        try:
            with self._system.open_input_file(f"{self._path}/{name}") as stream:
                yield stream
        except OSError as error:
            raise PipelineError(f"{self.below(name)}: cannot be read ({_why(error)})") from error

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        try:
            with self._system.open_input_stream(f"{self._path}/{name}") as stream:
                return bytes(stream.read())
        except OSError as error:
            raise PipelineError(f"{self.below(name)}: cannot be read ({_why(error)})") from error

    def read_json(self, name: str) -> Any:
        """Return what a file says, None where there is none."""
        if not self.has(name):
            return None
        try:
            return json.loads(self.read(name))
        except ValueError as error:
            raise PipelineError(f"{self.below(name)}: cannot be read ({error})") from error

    def sync(self) -> None:
        """Wait until what has been written to a local folder is on the disk; other systems see to that themselves."""
        if isinstance(self._system, fs.LocalFileSystem):
            os.sync()  # Spark syncs none of its files

    def write_json(self, name: str, content: object) -> None:
        """Write a file that is there as a whole or not at all."""
        data = json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"
        self.write(name, data)

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is there as a whole or not at all."""

        def write() -> None:
            self._system.create_dir(self._path, recursive=True)
            unfinished = f"{self._path}/.{name}.partial"
            with self._system.open_output_stream(unfinished) as stream:
                stream.write(data)
            self._system.move(unfinished, f"{self._path}/{name}")

        self._explained(write)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing where there is none."""
        kind = self._explained(lambda: self._info(name).type)
        if kind is fs.FileType.Directory:
            self._explained(lambda: self._system.delete_dir(f"{self._path}/{name}"))
        elif kind is not fs.FileType.NotFound:
            self._explained(lambda: self._system.delete_file(f"{self._path}/{name}"))

    def _info(self, name: str) -> Any:
        return self._system.get_file_info(f"{self._path}/{name}")

    def _explained(self, what: Any) -> Any:
        try:
            return what()
        except OSError as error:
            raise PipelineError(f"{self.uri}: cannot be used ({_why(error)})") from error


def _why(error: Exception) -> str:
    """Return what went wrong in a few words: Arrow may say it in a hundred lines."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error).partition("\n")[0]
