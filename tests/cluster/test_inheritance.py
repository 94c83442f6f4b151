"""What comes from a dead node goes on at its heir as after a restart, and ends where its client has come back."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.cluster.members import HandedOver, hand_over
from holdfast.retained.leases import leases_of
from holdfast.sessions.rows import will_of
from holdfast.wire import packets as p
from tests.doubles import Client
from tests.postgres import drop, fresh_database
from tests.sessions.restartable import RestartableBroker
from tests.sessions.routing.test_leases import CONNECTED, SESSION, lend, participant, retained

WILL = p.Will("state", b"offline", 1, True)
OTHER = p.Will("state", b"other", 1, True)


class Pair:
    """Two nodes of one database. The first dies, and the second takes over."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.dead, self.heir = RestartableBroker(url, node=1), RestartableBroker(url, node=2)

    def take_over(self) -> None:
        """Kill the first node, and hand over."""
        self.dead.kill()
        taken: list[HandedOver] = []
        self.heir.parts.writer.run(lambda connection: hand_over(connection.cursor(), 1, 2)).addCallback(taken.append)
        self.heir.commit()
        (found,) = taken
        self.heir.registry.inherit([will_of(row) for row in found.wills], leases_of(found.leases))

    def wills(self) -> list[tuple[int, str]]:
        """Return the nodes and clients of the stored Wills."""
        self.heir.commit()
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            return connection.execute("SELECT node, client_id FROM wills ORDER BY node").fetchall()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two nodes."""
    url = fresh_database()
    made = Pair(url)
    yield made
    drop(url)


def device(broker: RestartableBroker, will: p.Will | None = WILL) -> Client:
    """Connect the client whose Will it is about."""
    return broker.client("device", 5, will=will)


def test_an_inherited_will_is_published_after_the_grace_of_a_restart(pair: Pair) -> None:
    """Its client may come back to the heir until then."""
    device(pair.dead)
    pair.take_over()
    assert pair.wills() == [(2, "device")]
    pair.heir.advance(59)
    assert retained(pair.heir) == []
    pair.heir.advance(2)
    assert retained(pair.heir) == [("state", b"offline")]
    assert pair.wills() == []


def test_a_client_that_comes_back_to_the_heir_cancels_its_will(pair: Pair) -> None:
    """As after a restart of its node."""
    device(pair.dead)
    pair.take_over()
    back = device(pair.heir, None)
    pair.heir.advance(100)
    assert retained(pair.heir) == []
    back.send(p.Disconnect())


@pytest.mark.parametrize("will", [None, OTHER])
def test_the_will_of_a_client_that_is_back_already_is_over(pair: Pair, will: p.Will | None) -> None:
    """It has connected to the heir before the heir took over. A new Will stays."""
    device(pair.dead)
    device(pair.heir, will)
    pair.take_over()
    assert pair.wills() == ([] if will is None else [(2, "device")])
    pair.heir.advance(100)
    assert retained(pair.heir) == []


def test_inherited_leases_end_after_the_grace(pair: Pair) -> None:
    """Those of connections and of Sessions that ended with the process. Others stay with their stored Session."""
    lend(participant(pair.dead, "a"), CONNECTED, topic="connected")
    lend(participant(pair.dead, "b", expiry=0), SESSION, topic="passing")
    lend(participant(pair.dead, "c"), SESSION, topic="stored")
    pair.take_over()
    assert {lease.topic for lease in pair.heir.retained.leases.by_topic.values()} == {"connected", "passing"}
    pair.heir.advance(59)
    assert len(retained(pair.heir)) == 3
    pair.heir.advance(10)
    pair.heir.commit()
    assert retained(pair.heir) == [("stored", b"on")]
