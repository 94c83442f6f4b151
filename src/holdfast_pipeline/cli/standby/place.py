"""The socket of the standby, in the folder of the server."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast_pipeline.server_files import server_folder

_NAME = "commands"
_CREDENTIALS = struct.Struct("3i")


def listening_in(folder: Path) -> socket.socket:
    """Return a socket that listens in a folder of the user. Raises :class:`OSError`."""
    with suppress(FileNotFoundError):  # of a standby that has ended
        (folder / _NAME).unlink()
    found = socket.socket(socket.AF_UNIX)
    _with_short_path(folder, found.bind)
    found.listen()
    return found


def connected(environment: Mapping[str, str], patience: float) -> socket.socket | None:
    """Return a connection to the user's standby, None if there is none. It waits ``patience`` seconds at a time."""
    # A server needs Linux, too.
    folder = server_folder(environment) if sys.platform == "linux" else None
    if folder is None:
        return None
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(patience)
    try:
        _with_short_path(folder, found.connect)
        if peer(found)[1] == os.geteuid():
            return found
    except OSError:  # there is none, or it has ended
        pass
    found.close()
    return None


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the ids of the process and of the user at the other end."""
    size = _CREDENTIALS.size
    process, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return process, user


def _with_short_path(folder: Path, function: Callable[[str], None]) -> None:
    """Call a function of a socket: an address has at most 107 characters, and a folder's path may be longer."""
    number = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        function(f"/proc/self/fd/{number}/{_NAME}")
    finally:
        os.close(number)
