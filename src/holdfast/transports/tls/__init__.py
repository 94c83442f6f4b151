"""TLS as a layer of a connection: its handshake, the contexts of a listener, and their files.

Only a broker with such a listener imports it, since it imports OpenSSL. May import ``transports.layers``.
"""
