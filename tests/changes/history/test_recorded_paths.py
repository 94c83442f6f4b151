"""Every way to change a retained message leaves an entry, so the history of now equals the retained messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.messages import ApplicationMessage, ChangeKind, ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.retained.limits import OnLimit, Quota, RetainerLimits
from holdfast.retained.verdicts import Merge
from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.changes.history.recorded import RecordedBroker
from tests.doubles import START
from tests.postgres import drop, fresh_database, synchronous
from tests.storage.doubles import fresh_file, result_of

Make = Callable[..., RecordedBroker]


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Prepare brokers, one after the other, on one database."""
    url = fresh_database() if request.param == "postgres" else f"sqlite:///{fresh_file(tmp_path)}"
    brokers: list[RecordedBroker] = []

    def prepare(limits: RetainerLimits, **options: Any) -> RecordedBroker:
        start = START
        if brokers:
            start = round(brokers[-1].clock.seconds()) + 1
            brokers[-1].close()
        brokers.append(RecordedBroker(lambda now: synchronous(url, now=now)[0], limits, start=start, **options))
        return brokers[-1]

    yield prepare
    brokers[-1].close()
    if request.param == "postgres":
        drop(url)


def shown(messages: list[Any]) -> list[tuple[Any, ...]]:
    return [(one.topic, one.payload, one.qos, one.properties, one.expires_at) for one in messages]


def in_step(broker: RecordedBroker) -> None:
    """Assert that the history of now has exactly the retained messages."""
    broker.settle()
    listed = result_of(broker.operator.listing("", "", 1000, 1 << 20, True))
    now = broker.now()
    live = [one.message for one in listed.entries]
    assert all(one.expires_at is None or one.expires_at > now for one in live)
    then = result_of(broker.history.as_of("", result_of(broker.history.moment(now))))
    assert then.done
    assert shown(then.messages) == shown(live)


def finish(broker: RecordedBroker, work: Any) -> Any:
    broker.settle()
    return result_of(work)


def test_every_path_is_recorded(make: Make) -> None:
    """After each path, history and retained messages agree. The list of origins is complete."""
    limits = RetainerLimits(
        on_limit=OnLimit.DROP_OLD,
        max_payload_size=20,
        msg_clear_interval=60,
        topic_quotas=(("quota/#", Quota("q.", 1)),),
        client_quota=Quota("c.", 100),
    )
    broker = make(limits, counted=("quota/#",))
    client = broker.client("c", 5)
    seen: dict[ChangeOrigin, set[ChangeKind]] = {}

    def step() -> None:
        in_step(broker)
        for event in result_of(broker.history.events("", limit=1000)).events:
            seen.setdefault(event.origin, set()).add(event.kind)

    for number in range(6):
        client.publish(f"t/{number}", b"1", 1, True, properties=Properties(content_type="x"))
    client.publish("t/0", b"2", 2, True)
    client.send(p.Pubrel(1))
    client.publish("t/1", b"", 1, True)
    step()
    dying = broker.client("w", 5, will=p.Will("t/will", b"gone", 1, True, NO_PROPERTIES))
    dying.drop()
    step()
    lender = broker.client("l", 5, properties=Properties(user_properties=(("holdfast", "?"),)))
    lease = Properties(user_properties=(("holdfast-retain-while", "session"),))
    lender.publish("t/leased", b"1", 1, True, properties=lease)
    lender.send(p.Disconnect())
    step()
    finish(broker, broker.operator.set(ApplicationMessage("t/api", b"a", 0, True)))
    finish(broker, broker.operator.clear("t/2"))
    step()
    imported = RetainedMessage("t/old", b"i", 1, NO_PROPERTIES, "x", "y", START, None, 1)
    other = RetainedMessage("t/3", b"i", 0, NO_PROPERTIES, None, None, 1, None, 1)
    broker.import_messages([imported, other], Merge.REPLACE)
    step()
    client.publish("t/short", b"x", 1, True, properties=Properties(message_expiry_interval=5))
    step()
    broker.advance(60)
    assert broker.retained.totals.refreshed().count == len(result_of(broker.history.as_of(
        "", result_of(broker.history.moment(broker.now())))).messages)  # fmt: skip
    step()
    client.publish("t/4", b"x" * 21, 1, True)  # too large: the older one is dropped
    client.publish("quota/1", b"1", 1, True)
    client.publish("quota/2", b"1", 1, True)  # over the quota: not retained
    client.publish("quota/1", b"2", 1, True)
    step()
    before = broker.now()
    broker.advance(1)
    finish(broker, broker.operator.clear("t/#"))
    client.publish("t/new", b"n", 1, True)
    step()
    finish(broker, broker.restorer.restore("#", before, clear=True))
    step()
    for days in (30, 1):  # the next start gives stored messages an earlier expiry
        broker = make(RetainerLimits(msg_expiry_interval_override=days * 86400.0, allow_never_expire=False))
        broker.advance(0)
        step()
    assert seen == {
        ChangeOrigin.PUBLISH: {ChangeKind.SET, ChangeKind.CLEAR},
        ChangeOrigin.WILL: {ChangeKind.SET},
        ChangeOrigin.LEASE: {ChangeKind.CLEAR},
        ChangeOrigin.LIMIT: {ChangeKind.CLEAR},
        ChangeOrigin.API: {ChangeKind.SET, ChangeKind.CLEAR},
        ChangeOrigin.IMPORT: {ChangeKind.SET},
        ChangeOrigin.EXPIRY: {ChangeKind.EXPIRE},
        ChangeOrigin.RESTORE: {ChangeKind.SET, ChangeKind.CLEAR},
        ChangeOrigin.OVERRIDE: {ChangeKind.SET},
    }
    assert set(ChangeOrigin) - set(seen) == {ChangeOrigin.BASELINE}  # nothing was there when the history began


@pytest.mark.parametrize("stored_at", [1, START * 1000 + 3_600_000], ids=["long ago", "ahead"])
def test_an_imported_message_is_in_the_history_from_the_import_on(make: Make, stored_at: int) -> None:
    """Not from its ``stored_at``, which another clock gave. Later changes have the time at which they happen."""
    broker = make(RetainerLimits())
    client = broker.client("c", 5)
    client.publish("before", b"1", 1, True)
    broker.advance(10)
    before = broker.now()
    broker.advance(10)
    message = RetainedMessage("t", b"i", 0, NO_PROPERTIES, None, None, stored_at, None, 1)
    broker.import_messages([message], Merge.NEWER)
    imported = broker.now()
    broker.advance(10)
    client.publish("after", b"1", 1, True)
    in_step(broker)
    events = {event.topic: event.changed_at for event in result_of(broker.history.events("", limit=10)).events}
    assert (events["t"], events["after"]) == (imported, broker.now())
    then = result_of(broker.history.as_of("", result_of(broker.history.moment(before))))
    assert [one.topic for one in then.messages] == ["before"]
    stored = result_of(broker.store.get("t"))
    assert stored.stored_at == stored_at


def test_a_change_that_comes_too_late_is_not_recorded(make: Make) -> None:
    """A change that was stamped before a client's change and committed after it has no effect."""
    broker = make(RetainerLimits())
    client = broker.client("c", 5)
    stamp = broker.store.next_revision()
    client.publish("t", b"newer", 1, True)
    assert finish(broker, broker.operator.clear("u")).count == 0
    broker.store.put(RetainedChange("t", stamp, broker.now(), None, origin=ChangeOrigin.API))
    in_step(broker)
    assert [event.kind for event in result_of(broker.history.events("t")).events] == [ChangeKind.SET]
