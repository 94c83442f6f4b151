"""CONNECT to CONNACK: limits, authentication and authorization; an admitted Client gets its Session.

Also re-authentication, which uses the same AUTH packets.
The top of ``sessions``: may import all its other packages.
"""
