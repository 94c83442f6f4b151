"""WebSocket as a layer of a connection: the opening handshake, frames, and the end.

May import ``transports.layers`` and ``wire``. Only a broker with such a listener imports it.
"""
