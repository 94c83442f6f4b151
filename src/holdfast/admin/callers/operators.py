"""Operators at the control socket: local users. The kernel names them, and they have all permissions."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from functools import lru_cache
from typing import Any

from holdfast.admin.callers.caller import Caller, Scope, Via

#: pid, uid and gid of the process at the other end of a UNIX domain socket (Linux)
_CREDENTIALS = struct.Struct("3i")
_PEER_CREDENTIALS: int | None = getattr(socket, "SO_PEERCRED", None)
_EVERYTHING = frozenset({Scope.ADMIN})

#: the user of a control socket whom the system cannot name: the mode of the socket has let this user in
UNKNOWN = Caller(scopes=_EVERYTHING, via=Via.CONTROL, on_loopback=True)


def operator_at(transport: Any) -> Caller:
    """Return the user whose process is at the other end of this transport, as it was when it connected."""
    connection = getattr(transport, "socket", None)
    if connection is None or connection.family != socket.AF_UNIX or _PEER_CREDENTIALS is None:
        return UNKNOWN
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _PEER_CREDENTIALS, _CREDENTIALS.size)
    except OSError:  # a kernel without the option
        return UNKNOWN
    return operator_with(_CREDENTIALS.unpack(found)[1])


def this_operator() -> Caller:
    """Return the user of this process."""
    return operator_with(os.getuid())


@lru_cache(maxsize=64)  # a directory service may take its time
def operator_with(uid: int) -> Caller:
    """Return the user with this number."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    return Caller(name, uid, _EVERYTHING, Via.CONTROL, on_loopback=True)
