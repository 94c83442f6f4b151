"""TLS of one listener: its present contexts, and the change to new ones while connections stay."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen
from OpenSSL import SSL
from twisted.logger import Logger

from holdfast.transports.layers import Layer
from holdfast.transports.tls.contexts import Contexts, build
from holdfast.transports.tls.handshake_turns import HandshakeTurns
from holdfast.transports.tls.layer import TLSLayer
from holdfast.transports.tls.settings import TLSSettings

#: days before the end of a certificate from which on the log warns
WARNING_DAYS = 21

#: stands for the API among the listeners; no listener can have this name
ADMIN = "(admin)"

_FileStates = Mapping[Path, object]


def table_of(listener: str) -> tuple[str, ...]:
    """Return the key of the table with the options of a listener's TLS."""
    return ("admin", "tls") if listener == ADMIN else ("listeners", listener, "tls")


@frozen
class Loaded:
    """Contexts that were built from files, and the state of the files before they were read."""

    settings: TLSSettings
    contexts: Contexts
    files: _FileStates


def load(settings: TLSSettings, now: float) -> Loaded:
    """Build the contexts of a listener. ``now`` is in seconds since the epoch. Raises UnusableTLS."""
    files = states_of(settings)
    return Loaded(settings, build(settings, now), files)


def states_of(settings: TLSSettings) -> _FileStates:
    """Return for each file a value that changes when the file changes; links are followed."""
    return {path: _state(path) for path in settings.files}


def _state(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


class ListenerTLS:
    """The TLS of one listener. ``now`` returns seconds since the epoch."""

    _log = Logger()

    def __init__(self, listener: str, loaded: Loaded, turns: HandshakeTurns, now: Callable[[], float]) -> None:
        self.listener = listener
        self.loaded = loaded
        self._turns = turns
        self._now = now

    @property
    def is_admin(self) -> bool:
        """Whether this is the TLS of the API."""
        return self.listener == ADMIN

    def new_connection(self) -> SSL.Connection:
        """Return OpenSSL's part of a new connection, made from the present contexts."""
        return self.loaded.contexts.connection()

    def new_layer(self) -> Layer:
        """Return the layer of a new connection."""
        return TLSLayer(self.new_connection, self._turns)

    def take(self, loaded: Loaded) -> None:
        """Use these contexts for all connections from now on. Open connections keep theirs."""
        self.loaded = loaded
        self.tell()

    def tell(self) -> None:
        """Log the certificates and their days, and the warnings about their files."""
        for key in self.loaded.contexts.keys:
            self._log.info(
                "listener {listener}: TLS with {file} for {names}, {days} days left",
                listener=self.listener,
                file=str(key.pair.certificate),
                names=", ".join(key.names) or "no name",
                days=int(key.days_left(self._now())),
            )
        for warning in self.loaded.contexts.warnings:
            self._warn(warning.option, warning.message)
        self.warn_of_ends()

    def warn_of_ends(self) -> None:
        """Warn of certificates that expire soon, or have expired."""
        for key in self.loaded.contexts.keys:
            days = key.days_left(self._now())
            if 0 < days <= WARNING_DAYS:
                self._warn(key.pair.option("certificate"), f"{key.pair.certificate} expires in {days:.0f} days")
        for problem in self.loaded.contexts.expired(self._now()):
            self._warn(problem.option, problem.message)

    def _warn(self, option: str, message: str) -> None:
        self._log.warn(
            "{table}.{option}: {message}", table=".".join(table_of(self.listener)), option=option, message=message
        )
