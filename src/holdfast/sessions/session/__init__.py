"""Session State: what the broker remembers of a client [MQTT5-4.1].

``registry`` knows all Sessions by Client Identifier; ``states`` is the seam to where they are stored.
May import ``delivery``; knows no connection and no transport.
"""
