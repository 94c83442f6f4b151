"""The address of the API: the control socket in the data directory, and prefixes of paths."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET_NAME = "control.sock"
API_PREFIX = "/api/v5/mqtt/retainer"
JOBS_PATH = "/api/v5/jobs"
#: the call of MQTT clients, who have no API key
CLIENTS_PATH = "/api/v5/retained"
#: bytes of the longest path that a socket can be bound to
_LONGEST_PATH = 107


class SocketAddress:
    """The address of a UNIX domain socket. ``text`` is short enough for the kernel even if ``path`` is too long."""

    def __init__(self, path: Path) -> None:
        self._directory: int | None = None
        self.text = str(path)
        if len(os.fsencode(path)) > _LONGEST_PATH:
            self._directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.text = f"/proc/self/fd/{self._directory}/{path.name}"

    def close(self) -> None:
        """Close the directory, which a long path needs while the socket is bound or connected."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


# The paths of calls that commands make. Commands import them without Twisted.


TRACE_PATH = "/api/v5/trace"
