"""The way between a socket and MQTT: listeners and their limits, the PROXY protocol, TLS, WebSocket, the protocol.

No other room touches a client's transport.
"""
