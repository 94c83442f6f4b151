"""The operators behind the control socket: local users, whom the kernel names."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from functools import lru_cache
from typing import Any

from attrs import frozen

#: pid, uid and gid of the process at the other end of a UNIX domain socket (Linux)
_CREDENTIALS = struct.Struct("3i")
_PEER_CREDENTIALS: int | None = getattr(socket, "SO_PEERCRED", None)


@frozen
class Operator:
    """A local user. The name is "" if the system cannot tell it; ``uid`` is None then."""

    name: str = ""
    uid: int | None = None

    def __str__(self) -> str:
        return self.name or "an unknown operator"


UNKNOWN = Operator()


def operator_at(transport: Any) -> Operator:
    """Return the user whose process is at the other end of this transport, as it was when it connected."""
    connection = getattr(transport, "socket", None)
    if connection is None or connection.family != socket.AF_UNIX or _PEER_CREDENTIALS is None:
        return UNKNOWN
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _PEER_CREDENTIALS, _CREDENTIALS.size)
    except OSError:  # a kernel without the option
        return UNKNOWN
    return operator_with(_CREDENTIALS.unpack(found)[1])


def this_operator() -> Operator:
    """Return the user of this process."""
    return operator_with(os.getuid())


@lru_cache(maxsize=64)  # a directory service may take its time
def operator_with(uid: int) -> Operator:
    """Return the user with this number."""
    try:
        return Operator(pwd.getpwuid(uid).pw_name, uid)
    except KeyError:
        return Operator(f"uid {uid}", uid)
