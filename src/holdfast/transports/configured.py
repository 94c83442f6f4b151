"""The layers of the connections of the listeners, as they are configured. Their libraries are imported where needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime

from holdfast.config import Config
from holdfast.config.sections.listeners import WEBSOCKET, ListenerConfig
from holdfast.scheduling.fair_line import GoOn, Turns
from holdfast.transports.layers import Layer, MakeLayers

if TYPE_CHECKING:
    from OpenSSL import SSL

    from holdfast.transports.tls_reloading import CertificateReloads, ListenerTLS, Loaded


class ComposedTLS(Service):
    """The TLS of all listeners, and what reloads their certificates. ``now`` returns milliseconds since the epoch."""

    def __init__(self, reactor: Any, now: Callable[[], int]) -> None:
        self._reactor = reactor
        self._now = now
        self._listeners: dict[str, ListenerTLS] = {}
        self._turns: Turns[GoOn] | None = None
        self._reloads: CertificateReloads | None = None

    def new_layer(self, listener: str) -> Layer:
        """Return the layer of a new connection of this listener."""
        return self._listeners[listener].new_layer()

    def admin_maker(self) -> Callable[[], SSL.Connection] | None:
        """Return what makes OpenSSL's part of a connection to the API, None if the API has no TLS."""
        for listener in self._listeners.values():
            if listener.is_admin:
                return listener.new_connection
        return None

    def line_up(self, step: GoOn) -> None:
        """Let a step of the handshake of a connection to the API take a turn among those of all listeners."""
        assert self._turns is not None, "a handshake needs a context, and contexts come with turns"
        self._turns.enter(step, step)

    def ends(self) -> dict[str, float]:
        """Return when the first certificate of each listener expires, in seconds since the epoch."""
        found = {}
        for name, listener in self._listeners.items():
            ends = [key.expires.timestamp() for key in listener.loaded.contexts.keys]
            if ends:
                found[name] = min(ends)
        return found

    def startService(self) -> None:
        """Tell what is loaded, and look at the files from now on."""
        Service.startService(self)
        if self._reloads is not None:
            self._reloads.startService()

    def stopService(self) -> None:
        """Look no longer."""
        Service.stopService(self)
        if self._reloads is not None:
            self._reloads.stopService()

    def prepare(self, config: Config) -> Callable[[], None]:
        """Read all files, in any thread. Return what uses them for connections from then on.

        Raises ConfigError with all problems.
        """
        if config.admin.tls is None and all(each.tls is None for each in config.listeners.values()):
            return partial(self._take, {})
        from holdfast.transports.tls_reloading import load_all

        return partial(self._take, load_all(config, self._seconds()))

    def _take(self, loaded: Mapping[str, Loaded]) -> None:
        known = {name: (each.loaded.settings, each.loaded.files) for name, each in self._listeners.items()}
        if known == {name: (each.settings, each.files) for name, each in loaded.items()}:
            return
        before, self._listeners = self._listeners, {}
        if self._reloads is not None and self.running:
            self._reloads.stopService()
        self._reloads = None
        if not loaded:
            return
        from twisted.internet.threads import deferToThreadPool

        from holdfast.transports.tls import turns_of_handshakes
        from holdfast.transports.tls_reloading import CertificateReloads, ListenerTLS

        reactor = self._reactor
        self._turns = self._turns or turns_of_handshakes(reactor)
        for name, each in loaded.items():
            listener = before.get(name) or ListenerTLS(name, each, self._turns, self._seconds)
            listener.loaded = each
            self._listeners[name] = listener
        self._reloads = CertificateReloads(
            tuple(self._listeners.values()), clock=reactor, now=self._seconds,
            run=lambda build: deferToThreadPool(reactor, reactor.getThreadPool(), build),
        )  # fmt: skip
        if self.running:
            self._reloads.startService()

    def _seconds(self) -> float:
        return self._now() / 1000


def layers_of(
    listener: ListenerConfig, max_packet_size: int, clock: IReactorTime, new_tls: Callable[[], Layer] | None
) -> MakeLayers | None:
    """Return what makes the layers of each connection, or None for plain MQTT. ``new_tls`` makes the layer of TLS."""
    if listener.transport != WEBSOCKET:
        return None if new_tls is None else lambda: [new_tls()]
    # Its library is large, and few brokers need it.
    from holdfast.transports.websocket import WebSocketLayer
    from holdfast.transports.websocket_opening import AllowedOrigins, Opening

    opening = Opening(listener.path, AllowedOrigins(listener.origins))

    def new_websocket() -> Layer:
        return WebSocketLayer(opening, max_packet_size, clock)

    if new_tls is None:
        return lambda: [new_websocket()]
    return lambda: [new_tls(), new_websocket()]
