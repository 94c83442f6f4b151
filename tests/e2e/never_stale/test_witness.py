"""The witness of the test accepts correct messages, and reports each violation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve

from holdfast.wire import Properties
from holdfast.wire.packets import Publish
from tests.e2e.never_stale.ledger import Ledger
from tests.e2e.never_stale.plan import Kind
from tests.e2e.never_stale.revisions import Revisions
from tests.e2e.never_stale.witness import Violation, Witness


def judge(
    *sent: Publish, version: int = 5, floor: int = 0, rap: bool = False, resumed: bool = False, qos: int = 1
) -> None:
    """Judge messages of a topic with the values 1, 2, 4 and 5; 3 is a clear, and 6 was published with RETAIN 0.

    5 was published with QoS 0, all others with ``qos``.
    """
    ledger = Ledger.of_nodes(1)
    kinds = (Kind.SET, Kind.SET, Kind.CLEAR, Kind.SET, Kind.SET, Kind.PASSING)
    for kind, published in zip(kinds, (qos, qos, qos, qos, 0, qos), strict=True):
        ledger.publish("t", kind, published, "p", 0, version == 5)
    witness = Witness(ledger, "c", version, 0, {}, {"t": floor}, {7: "t"}, False, rap, resumed)
    for packet in sent:
        witness.take(packet)


def live(value: int, qos: int = 1, dup: bool = False, retain: bool = False) -> Publish:
    """Return a live message with this value."""
    if value == 3:
        return Publish("t", b"", qos, retain, dup, properties=Properties(correlation_data=b"3"))
    return Publish("t", b"%d " % value, qos, retain, dup)


def replayed(value: int, dup: bool = False) -> Publish:
    """Return a message of a replay with this value."""
    return live(value, min(1, 5 - value), dup, True)


UNNUMBERED = Publish("t", b"", 1)


@pytest.mark.parametrize(
    "sent",
    [
        (live(1), live(2), live(3), live(4), live(5, 0), live(6)),
        (live(5, 0), live(2)),  # of another QoS
        (live(1), replayed(1)),
        (live(6), replayed(1)),  # RETAIN 0 changes nothing
        (live(3), replayed(1, dup=True)),
        (live(3), replayed(4)),
        (replayed(1), replayed(4), live(5, 0)),
    ],
)
def test_allowed_messages(sent: Sequence[Publish]) -> None:
    """Newer messages, other QoS, and repetitions with DUP."""
    judge(*sent)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ((live(2), replayed(1)), "a stale value after a fresh one"),
        ((live(3), replayed(2)), "a stale value after a fresh one"),
        ((replayed(4), replayed(2)), "a stale value after a fresh one"),
        ((live(2), live(1)), "a live message out of order"),
        ((live(2), live(2)), "a live message out of order"),
        ((live(6), live(4)), "a live message out of order"),
        ((replayed(5), live(4)), "live, but replayed newer before"),
        ((live(6, retain=True),), "replayed, but published with RETAIN 0"),
        ((live(3, retain=True),), "an empty message was replayed"),
        ((live(1, 2),), "sent with a higher QoS"),
        ((Publish("t", b"1 ", properties=Properties(subscription_identifiers=(8,))),), "another Subscription"),
    ],
)
def test_violations(sent: Sequence[Publish], why: str) -> None:
    """Each sequence is another violation."""
    with pytest.raises(Violation, match=why):
        judge(*sent)


def test_outdated_values_are_not_replayed() -> None:
    """The floor is the value accepted before the connection, or a round trip on it, began."""
    judge(replayed(4), floor=4)
    with pytest.raises(Violation, match="replayed after it was known to be outdated"):
        judge(replayed(2), floor=3)


def test_on_a_resumed_session_a_qos_2_message_may_be_outdated() -> None:
    """It may have waited for its commit since an earlier connection. It does not come after a newer one."""
    first = evolve(replayed(2), qos=2)
    with pytest.raises(Violation, match="replayed after it was known to be outdated"):
        judge(replayed(2), floor=3, resumed=True)
    judge(first, floor=3, resumed=True, qos=2)
    with pytest.raises(Violation, match="a stale value after a fresh one"):
        judge(live(4), first, floor=3, resumed=True, qos=2)


def test_an_empty_message_without_a_number_is_the_earliest_possible_clear() -> None:
    """In MQTT 3.1.1 it has no number. The only clear here is 3: neither a replayed 2 nor another 3 may follow."""
    judge(live(2), UNNUMBERED, replayed(4), version=4)
    with pytest.raises(Violation, match="a stale value after a fresh one"):
        judge(live(2), UNNUMBERED, replayed(2), version=4)
    with pytest.raises(Violation, match="nobody can have published"):
        judge(live(2), UNNUMBERED, UNNUMBERED, version=4)


def test_live_messages_with_retain_1_are_in_order() -> None:
    """With Retain As Published they look like replayed messages, but may follow newer messages of another QoS."""
    judge(live(5, 0, retain=True), live(4, retain=True), rap=True)
    with pytest.raises(Violation, match="a stale value after a fresh one"):
        judge(live(4, retain=True), live(2, retain=True), rap=True)


def test_values_that_may_be_retained_in_the_end() -> None:
    """The newest message or none; both are allowed if a tool raced with the publisher."""
    ledger = Ledger.of_nodes(1)
    ledger.publish("set", Kind.SET, 1, "p", 0, True)
    ledger.publish("settled", Kind.SET, 1, "p", 0, True)
    ledger.accept(2, True)
    ledger.publish("before", Kind.SET, 1, "p", 0, True)
    ledger.clean_begins("+")
    ledger.publish("during", Kind.SET, 1, "p", 0, True)
    ledger.clean_ended(0)
    ledger.publish("set", Kind.SET, 1, "p", 0, True)
    ledger.publish("cleared", Kind.CLEAR, 1, "p", 0, True)
    outcomes = {topic: ledger.outcomes(topic) for topic in ledger.newest}
    assert outcomes == {"set": {6}, "settled": {None}, "before": {3, None}, "during": {5, None}, "cleared": {None}}
    assert ledger.accepted[0]["settled"] == 4


def test_a_notice_of_expiry_is_the_end_of_an_expiring_message() -> None:
    """It has no number, and comes behind that message: nothing older may follow."""
    ledger = Ledger.of_nodes(1)
    for kind in (Kind.SET, Kind.EXPIRING):
        ledger.publish("t", kind, 1, "p", 0, True)
    witness = Witness(ledger, "c", 5, 0, {}, {}, {})
    witness.take(live(2))
    assert witness.take(UNNUMBERED).kind is Kind.EXPIRING
    with pytest.raises(Violation, match="a stale value after a fresh one"):
        witness.take(replayed(1))


def test_a_refused_value_is_a_violation() -> None:
    """Nobody may receive a message whose condition did not hold."""
    ledger = Ledger.of_nodes(1)
    refused = ledger.refuse()
    with pytest.raises(Violation, match="which was refused"):
        Witness(ledger, "c", 5, 0, {}, {}, {}).take(live(refused))


def test_revisions_rise_with_the_values() -> None:
    """Each change has one revision."""
    revisions = Revisions({})
    assert revisions.told("t", 1, 10)
    assert revisions.told("t", 3, 30)
    assert revisions.told("t", 2, 20)
    assert revisions.told("other", 2, 5)
    assert not revisions.told("t", 4, 25)
    assert not revisions.told("t", 1, 11)
