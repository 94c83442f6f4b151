"""Asks the RPC port of Spark's driver, as any local user can, to read a Java object."""

from __future__ import annotations

import socket
import struct

from tests.processes import PATIENCE

#: A request of Spark's RPC for the endpoint "x": no sender, no address, the endpoint's name, and the object "test".
_REQUEST = b"\0\0\0\x01x\xac\xed\0\x05t\0\x04test"
#: the type of a message that is answered, and of one that answers with a failure
_RPC_REQUEST = 3


def reads_objects(port: int, patience: float = PATIENCE, host: str = "127.0.0.1") -> bool:
    """Tell whether a port reads the object of a stranger: only then it looks for the endpoint, which is not there.

    A port that keeps silent for so many seconds reads none.
    """
    content = struct.pack(">BQI", _RPC_REQUEST, 1, len(_REQUEST)) + _REQUEST
    with socket.create_connection((host, port), timeout=patience) as connection:
        connection.sendall(struct.pack(">Q", 8 + len(content)) + content)
        answer = b""
        try:
            while b"Could not find x" not in answer and (received := connection.recv(1 << 16)):
                answer += received
                if len(answer) >= 8 and len(answer) >= struct.unpack(">Q", answer[:8])[0]:
                    break
        except (TimeoutError, ConnectionResetError):
            pass
    return b"Could not find x" in answer
