"""The control socket: the API for whoever may use the data directory, and for nobody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort

from holdfast.admin.site import APISite

NAME = "control.sock"
#: bytes of the longest path that a socket can be bound to
_LONGEST_PATH = 107


class ControlUnusable(Exception):
    """The control socket cannot be made; the text says why and what to do."""


class ControlSocket:
    """A socket in the data directory, which must be locked: whatever socket is found there was left behind."""

    def __init__(self, reactor: Any, directory: Path, site: APISite) -> None:
        self.path = directory / NAME
        self._reactor = reactor
        self._site = site
        self._port: IListeningPort | None = None
        self._place: Place | None = None

    def open(self) -> None:
        """Begin to listen, for this user only. Raises :class:`ControlUnusable`."""
        self._remove_stale()
        place = Place(self.path)
        before = os.umask(0o177)  # there is no moment at which others could connect
        try:
            self._port = self._reactor.listenUNIX(place.address, self._site, mode=0o600)
        except (CannotListenError, OSError) as error:
            place.close()
            reason = getattr(error, "socketError", error)
            raise ControlUnusable(f"{self.path}: cannot listen there: {reason}") from error
        finally:
            os.umask(before)
        self._place = place

    def close(self) -> Deferred[None]:
        """Stop listening, give up what is under way and remove the socket; fires when that is done."""
        port, self._port = self._port, None
        if port is None:
            return succeed(None)
        if not os.path.lexists(self.path):
            self.path.touch(0o600)  # Twisted removes it, and would fail where somebody else has
        self._site.abort()
        stopping = port.stopListening()
        return (stopping if isinstance(stopping, Deferred) else succeed(None)).addBoth(self._closed)

    def _closed(self, result: Any) -> Any:
        if self._place is not None:
            self._place.close()
            self._place = None
        return result

    def _remove_stale(self) -> None:
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise ControlUnusable(f"{self.path}: is not a socket; move it away")
        self.path.unlink()


class Place:
    """Where a socket is: ``address`` names it in few enough bytes, also where its path is a long one."""

    def __init__(self, path: Path) -> None:
        self._directory: int | None = None
        self.address = str(path)
        if len(os.fsencode(path)) > _LONGEST_PATH:
            self._directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.address = f"/proc/self/fd/{self._directory}/{path.name}"

    def close(self) -> None:
        """Let go of the directory."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None
