"""The counters and log lines of connections that are refused before CONNECT."""

from __future__ import annotations

from ipaddress import ip_address

import attrs
import pytest
from twisted.internet.task import Clock

from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections, Refusal
from holdfast.core.units import Rate
from holdfast.identity.addresses import Peer
from holdfast.sessions.counters import Counters
from holdfast.transports.listening import RefusedConnections
from holdfast.watch.log import ClientLog
from tests.logs import logged

LIMITS = ConnectionLimits(
    max_connections=11, max_connections_per_address=12, max_half_open_per_address=13, max_conn_rate=Rate(1, 1.0)
)


def peer(number: int) -> Peer:
    """One of many strangers."""
    return Peer(ip_address(f"192.0.2.{number}"), 5555)


class Refusing:
    """The refusals of a listener."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.refused = RefusedConnections(self.counters, ProcessConnections(14), ClientLog(Clock()))

    def refuse(self, refusal: Refusal, *peers: Peer) -> list[str]:
        """Refuse these peers; return the lines of the log."""
        with logged(ClientLog) as events:
            for each in peers:
                self.refused.refused("x", LIMITS, refusal, each)
        return [event["text"] for event in events]


@pytest.mark.parametrize("refusal", Refusal)
def test_every_cause_has_a_counter_and_a_line_with_the_address(refusal: Refusal) -> None:
    refusing = Refusing()
    (line,) = refusing.refuse(refusal, peer(1))
    verb = "closes" if refusal is Refusal.GAVE_WAY else "refuses"
    assert line.startswith(f"listener x {verb} a connection of 192.0.2.1:5555: ")
    assert "{" not in line
    counted = {
        name: count
        for name, count in attrs.asdict(refusing.counters, recurse=False).items()
        if isinstance(count, int) and count
    }
    assert counted == {refusal.value: 1}


@pytest.mark.parametrize(
    ("refusal", "number"),
    [(Refusal.CONNECTIONS, 11), (Refusal.CONNECTIONS_PER_ADDRESS, 12), (Refusal.HALF_OPEN_PER_ADDRESS, 13),
     (Refusal.OPEN_FILES, 14)],
)  # fmt: skip
def test_the_line_tells_the_limit(refusal: Refusal, number: int) -> None:
    (line,) = Refusing().refuse(refusal, peer(1))
    assert f" {number} connections" in line


def test_a_stranger_causes_one_line_a_second_for_each_cause() -> None:
    refusing = Refusing()
    lines = refusing.refuse(Refusal.CONNECTIONS, *[peer(1)] * 1000, peer(2))
    assert len(lines) == 2
    assert refusing.counters.connections_over_max_connections == 1001
    assert len(refusing.refuse(Refusal.RATE, peer(1))) == 1
