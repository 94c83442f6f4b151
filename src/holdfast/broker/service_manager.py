"""Tells the service manager (systemd, ``Type=notify``) that the broker is ready, reloads, stops, and is alive.

systemd names a datagram socket in the environment; see sd_notify(3). Without one, as in a terminal, nothing is told.
The *watchdog* is fed only after the writer's thread has answered too: if the writer hangs while
the reactor turns, the broker acknowledges nothing, and systemd restarts it. The writer answers also while a database
is away.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.scheduling.deadlines import PeriodicJob

_SOCKET = "NOTIFY_SOCKET"
_INTERVAL = "WATCHDOG_USEC"
_WATCHED = "WATCHDOG_PID"
#: microseconds within which the service manager hears again of a broker that waits
_PATIENCE = 120_000_000


class ServiceManager:
    """Sends the states of the broker to the service manager.

    ``address`` is the path of its socket (``@`` begins an abstract name), empty for none. ``interval`` is the time in
    seconds within which it expects the next sign of life, None for no watchdog. The answer of ``ask_writer`` fires once
    the writer's thread has answered.
    """

    _log = Logger()

    def __init__(
        self, address: str, interval: float | None, clock: IReactorTime, ask_writer: Callable[[], Deferred[None]]
    ) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._ask_writer = ask_writer
        self._watchdog = (
            PeriodicJob(self._feed, name="feeding the watchdog", interval=interval / 2, clock=clock)
            if self._address and interval is not None
            else None
        )
        self._is_watched = False

    @classmethod
    def of(
        cls, environment: Mapping[str, str], clock: IReactorTime, ask_writer: Callable[[], Deferred[None]]
    ) -> ServiceManager:
        """Return the service manager that the environment names."""
        watched = environment.get(_WATCHED, str(os.getpid())) == str(os.getpid())
        interval = environment.get(_INTERVAL, "")
        seconds = int(interval) / 1_000_000 if watched and interval.isascii() and interval.isdigit() else 0
        return cls(environment.get(_SOCKET, ""), seconds or None, clock, ask_writer)

    def waiting(self, reason: str) -> None:
        """Tell why clients cannot connect yet, and that the start may take longer. Repeat it within two minutes."""
        self._tell(f"EXTEND_TIMEOUT_USEC={_PATIENCE}\nSTATUS=waiting: {' '.join(reason.split())}")

    def ready(self, late: str = "") -> None:
        """Tell that clients can connect, and which listeners are ``late``; from now on, feed the watchdog."""
        self._tell("READY=1\nSTATUS=clients can connect" + (f"; waiting: {' '.join(late.split())}" if late else ""))
        if self._watchdog is not None and not self._is_watched:
            self._is_watched = True
            self._watchdog.start()

    def reloading(self) -> None:
        """Tell that the configuration is being read again; :meth:`ready` ends this."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Tell that the broker stops. The watchdog is fed on, since everything accepted is being stored."""
        self._tell("STOPPING=1\nSTATUS=storing what was accepted")

    def close(self) -> None:
        """Feed the watchdog no more: the store is closed."""
        if self._watchdog is not None and self._is_watched:
            self._is_watched = False
            self._watchdog.stop()

    def _feed(self) -> Deferred[None]:
        return self._ask_writer().addCallback(lambda _: self._tell("WATCHDOG=1"))

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:  # systemd acts on its own if it hears nothing; clients must not suffer
            self._log.error("the service manager cannot be told {state!r}: {error}", state=state, error=error)
