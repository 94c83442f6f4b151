"""The protocols between a socket and MQTT: TLS and WebSocket, each a layer of a connection.

May import ``auth.interfaces``, ``peers``, ``scheduling``, ``log`` and the interface of transports in ``sessions``.
"""
