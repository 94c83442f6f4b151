"""The places of the audit log: a file, and the journal of systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

JOURNAL = Path("/run/systemd/journal/socket")

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


class Sink(Protocol):
    """Takes lines. Every method may raise OSError."""

    def open(self) -> None:
        """Begin."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines without their ends."""

    def close(self) -> None:
        """End."""


class FileSink:
    """A file that only its owner may write and its group may read.

    It is opened again when it was renamed or removed: each batch looks. So logrotate needs no signal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def open(self) -> None:
        """Open the file, and create it if there is none."""
        self._descriptor = os.open(self._path, _FLAGS, 0o640)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines."""
        if self._descriptor is None or not self._is_in_place(self._descriptor):
            self.close()
            self.open()
        assert self._descriptor is not None
        data = b"".join(line + b"\n" for line in lines)
        written = os.write(self._descriptor, data)
        if written < len(data):  # the disk is full
            with suppress(OSError):  # the next line must not continue this one
                os.write(self._descriptor, b"\n")
            raise OSError(28, "the file has taken only a part of the lines")

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _is_in_place(self, descriptor: int) -> bool:
        try:
            there, here = os.stat(self._path), os.fstat(descriptor)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


class JournalSink:
    """The journal of systemd, one entry for each line, with SYSLOG_IDENTIFIER=holdfast-audit."""

    def __init__(self, path: Path = JOURNAL) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Connect with the journal."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        self._socket = connection

    def write(self, lines: Sequence[bytes]) -> None:
        """Send lines. An entry that the journal does not take at once is lost, with those after it."""
        if self._socket is None:
            self.open()
        assert self._socket is not None
        try:
            for line in lines:
                self._socket.send(b"PRIORITY=5\nSYSLOG_IDENTIFIER=holdfast-audit\nMESSAGE=" + line + b"\n")
        except OSError:
            self.close()  # a restarted journal has another socket
            raise

    def close(self) -> None:
        """Let go of the journal."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()
