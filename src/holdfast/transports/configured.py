"""The layers of the connections of one listener, as it is configured."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from holdfast.config.sections.listeners import WEBSOCKET, ListenerConfig
from holdfast.transports.layers import MakeLayers


def layers_of(listener: ListenerConfig, max_packet_size: int, clock: IReactorTime) -> MakeLayers | None:
    """Return what makes the layers of each connection, or None for plain MQTT."""
    if listener.transport != WEBSOCKET:
        return None
    # Its library is large, and few brokers need it.
    from holdfast.transports.websocket.layer import WebSocketLayer
    from holdfast.transports.websocket.opening import Opening
    from holdfast.transports.websocket.origins import AllowedOrigins

    opening = Opening(listener.path, AllowedOrigins(listener.origins))
    return lambda: [WebSocketLayer(opening, max_packet_size, clock)]
