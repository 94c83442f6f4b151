"""Expiry notices: subscribers get an empty message when a retained message expires, and never after a newer message."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from holdfast.core.messages import ApplicationMessage, ChangeKind
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.policies import Policies, Policy
from holdfast.sessions.operator_publisher import DELIVERIES, OperatorPublisher
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file


class Counted(OperatorPublisher):
    """Notes after each notice how many deliveries the turn has had."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.sent: list[int] = []

    def tell(self, message: ApplicationMessage) -> None:
        super().tell(message)
        self.sent.append(self._used)


def announcing(broker: MemoryBroker, publisher: OperatorPublisher | None = None) -> MemoryBroker:
    """Let a broker give notice, as the composition does before the start."""
    broker.retained.stopService()
    broker.retained.announce_expiry(publisher or OperatorPublisher(broker.router, broker.clock))
    broker.retained.startService()
    broker.settle()
    return broker


def retain(client: Client, topic: str, payload: bytes = b"x", expiry: int | None = 5) -> None:
    client.publish(topic, payload, 1, True, Properties(message_expiry_interval=expiry))


@pytest.mark.parametrize("interval", [0, 3600])
def test_present_subscribers_get_one_empty_message(interval: int) -> None:
    """Within a second, whatever the interval of sweeps is; others get none. The topic has no message then."""
    broker = announcing(MemoryBroker(retainer=RetainerLimits(msg_clear_interval=interval)))
    watcher, other = broker.client("w", 5), broker.client("o", 5)
    watcher.subscribe(p.SubscriptionRequest("a/#", 1))
    other.subscribe("b/#")
    publisher = broker.client("c", 5)
    retain(publisher, "a/1")
    retain(publisher, "a/2", expiry=None)
    assert [packet.payload for packet in watcher.got(p.Publish)] == [b"x", b"x"]
    broker.advance(4)
    assert watcher.got(p.Publish) == []
    broker.advance(2)
    (notice,) = watcher.got(p.Publish)
    assert (notice.topic, notice.payload, notice.qos, notice.retain) == ("a/1", b"", 1, False)
    broker.advance(60)
    assert watcher.got(p.Publish) == []
    assert other.got(p.Publish) == []
    assert broker.retained.totals.refreshed().count == 1


def test_a_policy_decides_for_its_topics() -> None:
    """Also against the general option, and from a reload on. Others follow the general option."""

    def told(general: bool, *policies: Policy) -> set[str]:
        broker = MemoryBroker()
        broker.retained.stopService()
        broker.retained.announce_expiry(OperatorPublisher(broker.router, broker.clock), general)
        broker.retained.startService()
        watcher, publisher = broker.client("w", 5), broker.client("c", 5)
        watcher.subscribe("#")
        broker.advance(1)
        broker.retained.change_policies(Policies(policies))
        for topic in ("yes/a", "no/a", "other"):
            retain(publisher, topic)
        broker.advance(7)
        return {packet.topic for packet in watcher.got(p.Publish) if not packet.payload}

    policies = (Policy(1, "yes/#", announce_expiry=True), Policy(2, "no/#", announce_expiry=False), Policy(3, "x"))
    assert told(False, *policies) == {"yes/a"}
    assert told(True, *policies) == {"yes/a", "other"}
    assert told(False, Policy(1, "#")) == set()
    assert told(True, Policy(1, "#")) == {"yes/a", "no/a", "other"}


def test_notices_end_with_the_policy_that_asked_for_them() -> None:
    """A reload takes the policy away; the next one brings it back."""
    broker = announcing(MemoryBroker())
    broker.retained.announce_expiry(OperatorPublisher(broker.router, broker.clock), False)
    watcher, publisher = broker.client("w", 5), broker.client("c", 5)
    watcher.subscribe("#")
    for policies, expected in (((), 0), ((Policy(1, "#", announce_expiry=True),), 1), ((), 0)):
        broker.retained.change_policies(Policies(policies))
        retain(publisher, "a")
        broker.advance(7)
        assert sum(not packet.payload for packet in watcher.got(p.Publish)) == expected


def test_nobody_is_told_by_default() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(msg_clear_interval=1))
    watcher = broker.client("w", 5)
    watcher.subscribe("#")
    retain(broker.client("c", 5), "a")
    assert len(watcher.got(p.Publish)) == 1
    broker.advance(60)
    assert watcher.got(p.Publish) == []


def test_a_client_that_is_away_gets_the_notice_in_place_of_the_message() -> None:
    """It does not take the expired message for the present one."""
    broker = announcing(MemoryBroker())
    away = broker.client("w", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    away.subscribe(p.SubscriptionRequest("#", 1))
    away.drop()
    publisher = broker.client("c", 5)
    retain(publisher, "a")
    broker.advance(10)
    back = broker.client("w", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    assert [(each.topic, each.payload) for each in back.backlog if isinstance(each, p.Publish)] == [("a", b"")]


def test_a_newer_message_is_not_followed_by_a_notice() -> None:
    """Not if it comes while the sweep waits for the database, nor while the notice waits for its turn."""
    waiting: list[Deferred[list[str]]] = []
    broker = announcing(MemoryBroker())

    def expire(_now: int, _limit: int) -> Deferred[list[str]]:
        waiting.append(Deferred())
        return waiting[-1]

    broker.store.expire = expire
    broker.advance(1)
    watcher, publisher = broker.client("w", 5), broker.client("c", 5)
    watcher.subscribe("#")
    publisher.publish("a/1", b"new", 1, True)
    topics = [f"a/{number}" for number in range(2 * DELIVERIES)]
    waiting[0].callback(topics)
    publisher.publish(topics[-1], b"new", 1, True)
    broker.settle()
    told = [packet.topic for packet in watcher.got(p.Publish) if not packet.payload]
    assert told == [topics[0], *topics[2:-1]]


def test_many_notices_leave_turns_to_others() -> None:
    """In one turn no more are sent than changes of operators."""
    broker = MemoryBroker()
    publisher = Counted(broker.router, broker.clock)
    announcing(broker, publisher)
    client = broker.client("c", 5)
    for number in range(5 * DELIVERIES):
        retain(client, str(number))
    broker.advance(6)
    assert publisher.sent == list(range(1, DELIVERIES + 1)) * 5


def test_a_subscriber_that_stays_behind_does_not_stop_the_sweep() -> None:
    """It reads a byte now and then, so it never stalls. Expired messages are removed all the same, and it is told."""

    class Behind(OperatorPublisher):
        def _is_behind(self, topic: str) -> bool:
            return True

    broker = MemoryBroker(retainer=RetainerLimits(msg_clear_interval=0))
    announcing(broker, Behind(broker.router, broker.clock))
    watcher, client = broker.client("w", 5), broker.client("c", 5)
    watcher.subscribe("#")
    for number in range(2000):  # two parts
        retain(client, str(number))
    watcher.got(p.Publish)
    told = 0
    for _ in range(600):
        broker.advance(0.05)
        told += len(watcher.got(p.Publish))
    assert (told, broker.retained.changes[ChangeKind.EXPIRE]) == (2000, 2000)


def test_a_failure_of_the_database_is_survived() -> None:
    """The next look tells it."""
    broker = announcing(MemoryBroker())
    watcher = broker.client("w", 5)
    watcher.subscribe("#")
    retain(broker.client("c", 5), "a")
    watcher.got(p.Publish)
    working = broker.store.expire
    broker.store.expire = lambda _now, _limit: fail(StorageFailure(FailureKind.FULL, "no space left"))
    broker.advance(6)
    broker.store.expire = working
    assert watcher.got(p.Publish) == []
    broker.advance(2)
    assert [packet.payload for packet in watcher.got(p.Publish)] == [b""]
    assert len(broker.retained.feed) == 0


def test_what_expired_while_the_broker_was_stopped_is_told_after_the_start(tmp_path: Path) -> None:
    """A Session that lasts gets it, as a message of its queue."""
    broker = RestartableBroker(fresh_file(tmp_path))
    lasting = partial(broker.client, "w", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    away = lasting()
    away.subscribe(p.SubscriptionRequest("#", 1))
    away.drop()
    retain(broker.client("c", 5), "a")
    broker.commit()
    broker = broker.restart(after=50)
    announcing(broker)
    broker.commit()
    back = broker.client("w", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    assert [each.payload for each in back.backlog if isinstance(each, p.Publish)] == [b""]


def test_a_stop_leaves_out_the_notices_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for a subscriber that is behind. Nothing of them stays in the change feed."""
    broker = MemoryBroker()
    publisher = OperatorPublisher(broker.router, broker.clock)
    room: Deferred[None] = Deferred()
    monkeypatch.setattr(publisher, "room", lambda _topic, _patience: None if room.called else room)
    announcing(broker, publisher)
    watcher = broker.client("w", 5)
    watcher.subscribe("#")
    retain(broker.client("c", 5), "a")
    broker.advance(6)
    broker.retained.stopService()
    room.callback(None)
    broker.advance(10)
    assert [packet.payload for packet in watcher.got(p.Publish)] == [b"x"]
    assert len(broker.retained.feed) == 0
