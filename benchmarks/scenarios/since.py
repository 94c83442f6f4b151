"""A client that comes back asks for only what changed: to the last of a hundred changes among all retained messages."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.connection import BenchError
from benchmarks.makes import start
from benchmarks.results import Metric, Result
from benchmarks.scenarios.seeding import ensure, retain
from holdfast.wire import PacketParser, Properties, encode
from holdfast.wire import packets as p

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

LAST = Metric("last", "ms", False)
_CHANGES = 100
_TIMES = 5
_SECONDS = 60.0
_END = "bench/end"


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Only Holdfast can be asked for that. Each time, other topics change."""
    if broker.name != "holdfast":
        return
    own = start(broker.name, broker.site, durable=True)
    try:
        count = scale.retained[-1]
        ensure(own, count)
        with result.case(name(count), [LAST], own) as case:
            found = []
            token, _ = _replay(own, "nothing/+", None)
            for turn in range(_TIMES):
                retain(own, turn * (count // _TIMES), _CHANGES, _CHANGES)
                own.quiet()
                token, seconds = _replay(own, "#", token, _CHANGES)
                found.append(seconds)
            case[LAST] = 1000 * sorted(found)[_TIMES // 2]
    finally:
        own.stop()


def name(count: int) -> str:
    """The name of the case."""
    return f"{_CHANGES} changes among {count:,} messages"


def _replay(broker: Broker, topic_filter: str, token: str | None, wanted: int = 0) -> tuple[str, float]:
    """Return the token of the marker, and the seconds from SUBSCRIBE to the last message before it."""
    asked = [("holdfast-replay-end", _END)] + ([("holdfast-replay-since", token)] if token else [])
    with socket.create_connection(("127.0.0.1", broker.port), timeout=_SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        came = _packets(sock)
        sock.sendall(encode(p.Connect("bench-since", 5, True, 0, properties=_told(("holdfast", "?"))), 5))
        next(came)
        sock.sendall(encode(p.Subscribe(1, (p.SubscriptionRequest(_END, 0),)), 5))
        next(came)
        count, begin = 0, time.perf_counter()
        last = begin
        sock.sendall(encode(p.Subscribe(2, (p.SubscriptionRequest(topic_filter, 0),), _told(*asked)), 5))
        for packet in came:
            if isinstance(packet, p.Publish):
                if packet.topic == _END:
                    break
                last, count = time.perf_counter(), count + 1
        else:
            raise BenchError("the broker closed the connection")
    if count != wanted:
        raise BenchError(f"{count} messages came, {wanted} have changed")
    return json.loads(packet.payload)["token"], last - begin


def _packets(sock: socket.socket) -> Iterator[p.Packet]:
    parser = PacketParser(1 << 28, 5)
    while data := sock.recv(1 << 18):
        parser.receive_data(data)
        while (packet := parser.next_packet()) is not None:
            yield packet


def _told(*properties: tuple[str, str]) -> Properties:
    return Properties(user_properties=properties)
