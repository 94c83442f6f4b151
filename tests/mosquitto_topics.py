"""The topics of mosquitto 2.0.11 below $SYS/broker/, as recorded, with the formats of their values."""

from __future__ import annotations

_COUNTS = """
    bytes/received bytes/sent
    clients/active clients/connected clients/disconnected clients/expired clients/inactive clients/maximum clients/total
    heap/current heap/maximum
    messages/received messages/sent messages/stored
    publish/bytes/received publish/bytes/sent
    publish/messages/dropped publish/messages/received publish/messages/sent
    shared_subscriptions/count store/messages/bytes store/messages/count subscriptions/count
"""
_LOADS = """
    bytes/received bytes/sent connections messages/received messages/sent
    publish/dropped publish/received publish/sent sockets
"""

#: regular expressions for the whole payload, by Topic Name
MOSQUITTO_TOPICS = {
    "$SYS/broker/version": r"\w+ version \d+\.\d+\S*",
    "$SYS/broker/uptime": r"\d+ seconds",
    "$SYS/broker/retained messages/count": r"\d+",
    **{f"$SYS/broker/{name}": r"\d+" for name in _COUNTS.split()},
    **{
        f"$SYS/broker/load/{name}/{period}": r"\d+\.\d\d"
        for name in _LOADS.split()
        for period in ("1min", "5min", "15min")
    },
}
