"""The machine's clock is set while the broker runs: what follows, and what goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from zope.interface import implementer

from holdfast.broker.watch import compose_clock_watch
from holdfast.identity.bans import Bans, Exempt
from holdfast.identity.interfaces import Credentials, IAuthenticator, Principal
from holdfast.scheduling.deadlines import BrokerClock
from holdfast.sessions.limits import Limits
from holdfast.storage.revisions import time_of
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import PEER, START
from tests.sessions.places import place
from tests.sessions.replays.test_markers import publishes, subscribe
from tests.sessions.replays.test_past import RememberingBroker, state

DAY = 86_400


class Audit:
    """Keeps the events."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.database: str | None = None

    def tell(self, kind: str, group: str | None, fields: Any, **texts: str | None) -> None:
        assert (group, texts) == (None, {})
        self.told.append((kind, fields["seconds"]))
        self.database = fields["database"]


class SteppedBroker(RememberingBroker):
    """A broker on a machine whose clock can be set. Its system tells nobody, so that the clocks are compared."""

    day: BrokerClock

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.ahead = 0.0
        super().__init__(*arguments, **options)
        self.audit = Audit()
        self.bans = Bans(now=lambda: self.now() / 1000, exempt=Exempt(()))
        self.watch = compose_clock_watch(
            self.day, self.clock, durable=self.durable, retained=self.retained, sessions=self.session_parts,
            bans=self.bans, audit=self.audit, notices=lambda _: None,
        )  # fmt: skip
        self.watch.startService()

    def now(self) -> int:
        if "day" not in vars(self):
            self.day = BrokerClock(lambda: self._ns() + round(self.ahead * 1e9), self._ns)
        return self.day.now()

    def _ns(self) -> int:
        return round(self.clock.seconds() * 1000) * 1_000_000

    def restart(self, after: float = 0, manual: bool = False) -> SteppedBroker:
        """Kill the process, and start another one at the machine's time."""
        self.kill()
        return SteppedBroker(self._place, manual, self.clock.seconds() + self.ahead + after, **self._options)

    def set_clock(self, seconds: float) -> None:
        """Set the machine's clock forward, or back, and let the broker notice it."""
        self.ahead += seconds
        self.advance(1)
        self.commit()


def past_of(broker: SteppedBroker, at: str) -> dict[str, bytes]:
    """Return the retained messages of a time."""
    client = broker.client("", 5)
    found = state(client, publishes(subscribe(client, f"$history/at/{at}/#")))
    return {topic.removeprefix(f"$history/at/{at}/"): payload for topic, payload in found.items()}


def retained_by(broker: SteppedBroker, topic_filter: str) -> dict[str, tuple[bytes, int | None]]:
    """Return what a new subscriber gets: payloads and the rest of the Message Expiry Interval."""
    client = broker.client("", 5)
    came = publishes(client.subscribe(topic_filter))
    client.send(p.Disconnect())
    return {packet.topic: (packet.payload, packet.properties.message_expiry_interval) for packet in came}


@pytest.mark.parametrize("make", ["sqlite", "postgresql"])
def test_three_days_forward(tmp_path: Path, make: str) -> None:
    """A computer without a clock, 20 s after its start: what this process has begun has the rest of its time.

    What an earlier process has stored ends at its own time, which is over. Another restart finds the same.
    """
    with place(make, tmp_path) as where:
        assert where is not None
        broker = SteppedBroker(where, limits=Limits(session_expiry_interval=None))
        publisher = broker.client("publisher", 5)
        publisher.publish("old/short", b"1", 1, True, Properties(message_expiry_interval=DAY))
        publisher.publish("old/long", b"2", 1, True, Properties(message_expiry_interval=9 * DAY))
        for client_id, delay in (("gone before", 0), ("gone for long", 5 * DAY)):
            will = p.Will(f"will/{delay}", b"gone", 1, False, Properties(will_delay_interval=delay))
            lasting = Properties(session_expiry_interval=delay or DAY)
            broker.client(client_id, 5, will=will if delay else None, properties=lasting).drop()
        broker.commit()

        broker = broker.restart(after=-5)  # the time that the machine has kept is older than the last change
        broker.advance(10)
        publisher = broker.client("publisher", 5)
        sleeper = broker.client("sleeper", 5, clean=False, properties=Properties(session_expiry_interval=100))
        sleeper.subscribe("live", qos=1)
        sleeper.drop()
        publisher.publish("new", b"3", 1, True, Properties(message_expiry_interval=60))
        publisher.publish("live", b"4", 1, False, Properties(message_expiry_interval=60))
        will = p.Will("will/300", b"gone", 1, False, Properties(will_delay_interval=300))
        broker.client("dying", 5, will=will, properties=Properties(session_expiry_interval=DAY)).drop()
        broker.bans.ban_peer(PEER, 60, "a test")
        broker.advance(10)
        before, revision = broker.now(), broker.store.next_revision()
        broker.set_clock(3 * DAY)

        assert broker.now() == before + 1000 * (3 * DAY + 1)
        assert broker.audit.told == [("clock", 3.0 * DAY)]
        assert (broker.audit.database is None) is (make == "sqlite")
        assert time_of(broker.store.next_revision()) - time_of(revision) == 1000 * (3 * DAY + 1)
        assert broker.registry.session_of("gone before") is None
        assert broker.registry.session_of("gone for long") is not None
        assert retained_by(broker, "#") == {"new": (b"3", 49), "old/long": (b"2", 6 * DAY - 16)}
        assert past_of(broker, "-0s") == {"new": b"3", "old/long": b"2"}
        watcher = broker.client("watcher", 5)
        watcher.subscribe("will/+")
        broker.advance(30)
        assert watcher.messages() == []
        broker.commit()

        broker = broker.restart()
        assert retained_by(broker, "#") == {"new": (b"3", 18), "old/long": (b"2", 6 * DAY - 47)}
        watcher = broker.client("watcher", 5)
        watcher.subscribe("will/+")
        sleeper = broker.client("sleeper", 5, clean=False, properties=Properties(session_expiry_interval=100))
        assert [packet.properties.message_expiry_interval for packet in publishes(sleeper.backlog)] == [18]
        sleeper.drop()
        broker.advance(20)
        assert set(retained_by(broker, "#")) == {"old/long"}
        assert broker.registry.session_of("sleeper") is not None
        broker.advance(90)  # longer than the grace of Wills that a process finds at its start
        assert watcher.messages() == []
        assert broker.registry.session_of("sleeper") is None
        broker.advance(150)
        assert watcher.messages() == [("will/300", b"gone", 0, False)]
        broker.advance(2 * DAY)
        assert watcher.messages() == [(f"will/{5 * DAY}", b"gone", 0, False)]


def test_without_a_restart_deadlines_of_this_process_come_as_before(tmp_path: Path) -> None:
    """Wills, Sessions, bans and messages end as long after their begin as they were told."""
    broker = SteppedBroker(tmp_path / "db")
    will = p.Will("will", b"gone", 1, False, Properties(will_delay_interval=50, message_expiry_interval=7))
    broker.client("dying", 5, will=will, properties=Properties(session_expiry_interval=100)).drop()
    broker.bans.ban_peer(PEER, 60, "a test")
    publisher = broker.client("publisher", 5)
    publisher.publish("new", b"3", 1, True, Properties(message_expiry_interval=60))
    broker.advance(19)
    broker.set_clock(3 * DAY)
    watcher = broker.client("watcher", 5)
    watcher.subscribe("will")
    broker.advance(29)
    assert watcher.messages() == []
    assert broker.bans.has_peer(PEER)
    broker.advance(2)
    (packet,) = watcher.got(p.Publish)
    assert packet.properties.message_expiry_interval == 7
    assert set(retained_by(broker, "#")) == {"new"}
    broker.advance(10)
    assert retained_by(broker, "#") == {}
    assert not broker.bans.has_peer(PEER)
    assert broker.registry.session_of("dying") is not None
    broker.advance(40)
    assert broker.registry.session_of("dying") is None


@pytest.mark.parametrize(("step", "waits"), [(DAY, DAY - 20), (3 * DAY, 40)])
def test_a_will_of_an_earlier_process_comes_at_its_time(tmp_path: Path, step: int, waits: int) -> None:
    """Its delay has passed while the machine was off, but for the grace in which its Client may come back."""
    broker = SteppedBroker(tmp_path / "db", limits=Limits(session_expiry_interval=None))
    lasting = Properties(session_expiry_interval=9 * DAY)
    will = p.Will("will", b"gone", 1, False, Properties(will_delay_interval=2 * DAY))
    broker.client("dying", 5, will=will, properties=lasting).drop()
    broker.commit()
    broker = broker.restart()
    broker.advance(19)
    broker.set_clock(step)
    watcher = broker.client("watcher", 5)
    watcher.subscribe("will")
    broker.advance(waits - 1)
    assert watcher.messages() == []
    broker.advance(2)
    assert watcher.messages() == [("will", b"gone", 0, False)]


@implementer(IAuthenticator)
class Tokens:
    """Believes everybody for so many seconds since the epoch as the User Name says."""

    def authenticate(self, credentials: Credentials) -> Principal:
        return Principal(credentials.client_id, credentials.username, expires_at=float(credentials.username or 0))


def test_tokens_end_at_their_time(tmp_path: Path) -> None:
    """Their ``exp`` is a time of day: a token that is over is refused, and ends the connection it has opened."""
    broker = SteppedBroker(tmp_path / "db", authenticator=Tokens())
    short, long = str(START + DAY), str(START + 3 * DAY + 60)
    clients = {each: broker.client(each, 5, username=each) for each in (short, long)}
    broker.advance(19)
    broker.set_clock(3 * DAY)
    broker.advance(1)
    assert [client.network.closed for client in clients.values()] == [True, False]
    late = broker.client("late", 5, username=short)
    assert late.connack is not None
    assert late.connack.reason_code >= 0x80
    broker.advance(40)
    assert clients[long].network.closed


def test_what_arrives_while_the_stored_times_move_is_moved_too(tmp_path: Path) -> None:
    """The database needs a while. Until then the time of day is the old one."""
    broker = SteppedBroker(tmp_path / "db", manual=True)
    broker.commit()
    publisher = broker.client("publisher", 5)
    publisher.publish("before", b"1", 1, True, Properties(message_expiry_interval=60))
    broker.ahead = 3 * DAY
    broker.advance(1)  # noticed; the writer is busy
    publisher.publish("meanwhile", b"2", 1, True, Properties(message_expiry_interval=60))
    assert broker.audit.told == []
    broker.commit()
    assert broker.audit.told == [("clock", 3.0 * DAY)]
    publisher.publish("after", b"3", 1, True, Properties(message_expiry_interval=60))
    broker.commit()
    assert {topic: left for topic, (_, left) in retained_by(broker, "#").items()} == {
        "before": 59, "meanwhile": 60, "after": 60,
    }  # fmt: skip


def test_two_seconds_back(tmp_path: Path) -> None:
    """The time of day stands still for so long; revisions and the history go on, and so do timers."""
    broker = SteppedBroker(tmp_path / "db")
    publisher = broker.client("publisher", 5)
    will = p.Will("will", b"gone", 0, True, Properties(will_delay_interval=10))
    broker.client("dying", 5, will=will, properties=Properties(session_expiry_interval=100)).drop()
    broker.advance(5)
    broker.set_clock(-2)
    assert broker.audit.told == [("clock", -2.0)]
    revision = broker.store.next_revision()
    for number in range(8):
        publisher.publish("t", b"%d" % number, 1, True)
        broker.advance(0.5)
        assert broker.store.next_revision() > revision
        revision = broker.store.next_revision()
    broker.advance(0.5)
    assert set(retained_by(broker, "#")) == {"t", "will"}
    assert broker.now() == round(1000 * (broker.clock.seconds() - 2))
    history = broker.parts.database.connect_reader().cursor()
    history.execute("SELECT changed_at, payload FROM retained_history WHERE topic = 't' ORDER BY seq")
    entries = history.fetchall()
    assert [payload for _, payload in entries] == [b"%d" % number for number in range(8)]
    assert [at for at, _ in entries] == sorted(at for at, _ in entries)
    assert past_of(broker, str(entries[-1][0])) == {"t": b"7"}


def test_a_day_back(tmp_path: Path) -> None:
    """Nothing follows: the time of day goes on, so no message lives longer and none comes back."""
    broker = SteppedBroker(tmp_path / "db")
    publisher = broker.client("publisher", 5)
    publisher.publish("t", b"1", 1, True, Properties(message_expiry_interval=60))
    before = broker.now()
    broker.set_clock(-DAY)
    broker.advance(58)
    assert set(retained_by(broker, "#")) == {"t"}
    broker.advance(1)
    assert retained_by(broker, "#") == {}
    assert broker.now() == before + 60_000
    assert broker.audit.told == []
