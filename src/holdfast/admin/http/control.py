"""The control socket: serves the API to the user of the data directory only.

It opens before the database, so that commands can ask what the broker waits for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort

from holdfast.admin.address import SOCKET_NAME, SocketAddress
from holdfast.admin.call import Answer, Call, unavailable
from holdfast.admin.http.site import Answering, APISite


def when_open(answering: Answering, late_database: Callable[[], str | None]) -> Answering:
    """Refuse all calls with status 503 while the broker waits for its database, and say why it waits."""

    def answer(call: Call) -> Deferred[Answer]:
        late = late_database()
        if late is None:
            return answering(call)
        return succeed(unavailable(f"the broker waits for its database: {late}").answer())

    return answer


class ControlUnusable(Exception):
    """The control socket cannot be created; the text has the reason and the remedy."""


class ControlSocket:
    """The control socket of a data directory. The directory must be locked: a socket found in it is then stale."""

    def __init__(self, reactor: Any, directory: Path, site: APISite) -> None:
        self.path = directory / SOCKET_NAME
        self._reactor = reactor
        self._site = site
        self._port: IListeningPort | None = None
        self._address: SocketAddress | None = None

    def open(self) -> None:
        """Begin to listen, for this user only. Raises :class:`ControlUnusable`."""
        self._remove_stale()
        address = SocketAddress(self.path)
        before = os.umask(0o177)  # a chmod afterwards would leave a moment in which others could connect
        try:
            self._port = self._reactor.listenUNIX(address.text, self._site, mode=0o600)
        except (CannotListenError, OSError) as error:
            address.close()
            reason = getattr(error, "socketError", error)
            raise ControlUnusable(f"{self.path}: cannot listen: {reason}") from error
        finally:
            os.umask(before)
        self._address = address

    def close(self) -> Deferred[None]:
        """Stop listening, abort calls and remove the socket; fires when this is done."""
        port, self._port = self._port, None
        if port is None:
            return succeed(None)
        if not os.path.lexists(self.path):
            self.path.touch(0o600)  # Twisted removes the socket, and would fail if it were already removed
        self._site.abort()
        stopping = port.stopListening()
        return (stopping if isinstance(stopping, Deferred) else succeed(None)).addBoth(self._closed)

    def _closed(self, result: Any) -> Any:
        if self._address is not None:
            self._address.close()
            self._address = None
        return result

    def _remove_stale(self) -> None:
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise ControlUnusable(f"{self.path}: is not a socket; move it away")
        self.path.unlink()
