"""The layers of the connections of the listeners, as they are configured. Their libraries are imported where needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime

from holdfast.config import Config
from holdfast.config.sections.listeners import WEBSOCKET, ListenerConfig
from holdfast.transports.layers import Layer, MakeLayers

if TYPE_CHECKING:
    from holdfast.transports.tls.reloading import CertificateReloads


@frozen
class ComposedTLS:
    """What makes the TLS layers of listeners, by their names, and the service that reloads the certificates."""

    layers: Mapping[str, Callable[[], Layer]] = field(factory=dict)
    reloads: CertificateReloads | None = None


def compose_tls(config: Config, reactor: Any, now: Callable[[], int]) -> ComposedTLS:
    """Build the TLS of all listeners. ``now`` returns milliseconds since the epoch.

    Raises ConfigError if a file cannot be used.
    """
    if all(listener.tls is None for listener in config.listeners.values()):
        return ComposedTLS()
    from twisted.internet.threads import deferToThreadPool

    from holdfast.transports.tls.configured import load_all
    from holdfast.transports.tls.handshake_turns import HandshakeTurns
    from holdfast.transports.tls.listener_tls import ListenerTLS
    from holdfast.transports.tls.reloading import CertificateReloads

    def seconds() -> float:
        return now() / 1000

    turns = HandshakeTurns(reactor)
    loaded = load_all(config, seconds())
    listeners = {name: ListenerTLS(name, each, turns, seconds) for name, each in loaded.items()}
    reloads = CertificateReloads(
        tuple(listeners.values()), clock=reactor, now=seconds,
        run=lambda build: deferToThreadPool(reactor, reactor.getThreadPool(), build),
    )  # fmt: skip
    return ComposedTLS({name: listener.new_layer for name, listener in listeners.items()}, reloads)


def layers_of(
    listener: ListenerConfig, max_packet_size: int, clock: IReactorTime, new_tls: Callable[[], Layer] | None
) -> MakeLayers | None:
    """Return what makes the layers of each connection, or None for plain MQTT. ``new_tls`` makes the layer of TLS."""
    if listener.transport != WEBSOCKET:
        return None if new_tls is None else lambda: [new_tls()]
    # Its library is large, and few brokers need it.
    from holdfast.transports.websocket.layer import WebSocketLayer
    from holdfast.transports.websocket.opening import Opening
    from holdfast.transports.websocket.origins import AllowedOrigins

    opening = Opening(listener.path, AllowedOrigins(listener.origins))

    def new_websocket() -> Layer:
        return WebSocketLayer(opening, max_packet_size, clock)

    if new_tls is None:
        return lambda: [new_websocket()]
    return lambda: [new_tls(), new_websocket()]
