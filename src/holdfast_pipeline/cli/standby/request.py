"""A command for the standby, with all that its user's shell gave it; and the reply."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import asdict, frozen

from holdfast_pipeline.cli.signals import END_SIGNALS

#: The reply before the command begins. If none comes, nothing has been done.
BEGUN = -1
_NUMBER = struct.Struct("!i")
_LENGTH = struct.Struct("!I")
#: Bytes of a request: the environment of a process has at most 2 MiB by default.
_MOST = 16 << 20
#: Open files: the folder, standard input, output and error.
_FILES = 4
#: Variables that only a new process obeys.
_READ_AT_START = ("PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS", "LD_LIBRARY_PATH", "LD_PRELOAD")
_STREAMS = ("stdin", "stdout", "stderr")


@frozen
class Request:
    """A command. ``streams`` are the encodings of standard input, output and error, with their handling of errors."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    umask: int
    priority: int
    ignored_signals: Sequence[int]
    streams: Sequence[tuple[str, str] | None]

    @classmethod
    def of_this_process(cls, arguments: Sequence[str]) -> Request:
        """Describe this process."""
        umask = os.umask(0o077)
        os.umask(umask)
        return cls(
            list(arguments),
            dict(os.environ),
            umask,
            os.getpriority(os.PRIO_PROCESS, 0),
            [number for number in END_SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
            [each and (each.encoding, each.errors or "strict") for each in (getattr(sys, name) for name in _STREAMS)],
        )

    def send(self, connection: socket.socket) -> None:
        """Send it, with the folder and the standard streams of this process. Raises :class:`OSError`."""
        content = json.dumps(asdict(self)).encode()
        files = [os.open(".", os.O_PATH | os.O_DIRECTORY)]
        try:
            for number in range(_FILES - 1):
                try:
                    files.append(os.dup(number))
                except OSError:  # it is closed
                    files.append(os.open(os.devnull, os.O_RDWR))
            socket.send_fds(connection, [_LENGTH.pack(len(content))], files)
        finally:
            for each in files:
                os.close(each)
        connection.sendall(content)

    @classmethod
    def receive(cls, connection: socket.socket) -> tuple[Request, list[int]]:
        """Return the next request, and its open files. Raises :class:`OSError` or :class:`ValueError`."""
        head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, _FILES)
        if len(head) < _LENGTH.size or len(files) != _FILES:
            raise ValueError("no request")
        (length,) = _LENGTH.unpack(head)
        if length > _MOST:
            raise ValueError("the request is too long")
        content = bytearray()
        while len(content) < length:
            piece = connection.recv(length - len(content))
            if not piece:
                raise ValueError("the request is not complete")
            content += piece
        fields: dict[str, Any] = json.loads(content)
        return cls(**fields), files

    def take_place(self, files: Sequence[int]) -> None:
        """Give this process the place of the client. Raises :class:`OSError` or :class:`ValueError`."""
        if any(self.environment.get(name) != os.environ.get(name) for name in _READ_AT_START):
            raise ValueError("only a new process obeys these variables")
        os.fchdir(files[0])
        for number, file in enumerate(files[1:]):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        os.environ.clear()
        os.environ.update(self.environment)
        time.tzset()
        os.umask(self.umask)
        with suppress(PermissionError):  # only root can raise a priority
            os.setpriority(os.PRIO_PROCESS, 0, self.priority)
        for number in END_SIGNALS:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if number in self.ignored_signals else usual)
        for number, names in enumerate(self.streams):
            if names is not None:
                # A stream remembers the position in its file: a new file needs a new stream.
                lines = number == 2 or os.isatty(number)
                stream = open(  # noqa: SIM115 - until the end of the process
                    number, "w" if number else "r", 1 if lines else -1, names[0], names[1], closefd=False
                )
                setattr(sys, _STREAMS[number], stream)
        sys.argv[1:] = self.arguments


def send_number(connection: socket.socket, number: int) -> None:
    """Send a reply: :data:`BEGUN` or an exit status. Raises :class:`OSError`."""
    connection.sendall(_NUMBER.pack(number))


def receive_number(connection: socket.socket) -> int | None:
    """Return the next reply, None if there is none any more. Raises :class:`OSError`."""
    content = b""
    while len(content) < _NUMBER.size:
        piece = connection.recv(_NUMBER.size - len(content))
        if not piece:
            return None
        content += piece
    number: int = _NUMBER.unpack(content)[0]
    return number
