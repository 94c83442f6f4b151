"""The other ends of Network Connections: their addresses, the PROXY protocol, and whether one more is accepted.

May import ``scheduling.rates`` and ``log.log_throttle``.
"""
