"""Quotas of policies, and reloads of all quotas. Each topic counts for the policy that applies to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.limits import Quota, RetainerLimits
from holdfast.retained.policies import Policies, Policy
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.retained.store.delayed_store import DelayedStore
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file


def policies(*quotas: tuple[str, int]) -> Policies:
    """Return policies with quotas in messages."""
    return Policies([Policy(number, one, max_retained_messages=most) for number, (one, most) in enumerate(quotas, 1)])


def refused(client: Client, *topics: str) -> list[str]:
    """Publish to topics, and return those that were refused with 0x97."""
    found = []
    for topic in topics:
        client.publish(topic, b"x", 1, True)
        (answer,) = client.got(p.Puback)
        if answer.reason_code == ReasonCode.QUOTA_EXCEEDED:
            found.append(topic)
    return found


def test_a_topic_counts_for_the_policy_that_applies_to_it_only() -> None:
    """The Reason String names the policy. Topics that are known, or cleared first, fit; others have no limit."""
    broker = MemoryBroker(retainer=RetainerLimits(policies=policies(("a/+/alarm", 1), ("a/#", 2))))
    client = broker.client("c", 5)
    assert refused(client, "a/1/alarm", "a/1", "a/2", "b", "c") == []
    assert refused(client, "a/3", "a/2/alarm", "a/1", "a/1/alarm", "d") == ["a/3", "a/2/alarm"]
    client.publish("a/3", b"x", 1, True)
    (answer,) = client.got(p.Puback)
    assert answer.properties.reason_string == (
        "retainer.policies, number 2, max_retained_messages = 2 is reached in 'a/#'"
    )
    client.publish("a/1", b"", 0, True)
    assert refused(client, "a/3") == []


def test_a_reload_changes_quotas_and_counts_what_is_stored(tmp_path: Path) -> None:
    """From no quota to one that is full, one that has room, another order, and none."""
    broker = RestartableBroker(fresh_file(tmp_path))
    client = broker.client("c", 5)
    assert refused(client, "a/1", "a/2", "a/3", "b/1") == []
    for used, over in (
        (policies(("a/#", 3)), ["a/4"]),
        (policies(("a/#", 4)), ["a/5"]),
        (policies(("a/5", 9), ("a/#", 4)), ["a/6"]),
        (policies(("#", 6)), ["a/6"]),
        (Policies(), []),
    ):
        broker.retained.change_policies(used)
        broker.commit()
        assert refused(client, "a/1", "a/4", "a/5", "a/6", "b/2")[:1] == over, used
        broker.commit()


def test_a_reload_changes_the_quotas_of_clients_and_topic_filters_and_counts_what_is_stored(tmp_path: Path) -> None:
    """From no quota to full ones, a higher and a lower one, one of two, none, and again."""
    broker = RestartableBroker(fresh_file(tmp_path))
    one, two = broker.client("one", 5), broker.client("two", 5)
    assert refused(one, "a/1", "a/2", "b/1") + refused(two, "a/3") == []

    def use(clients: int, **topics: int) -> None:
        broker.retained.change_limits(
            RetainerLimits(
                client_quota=Quota("c.", clients) if clients else None,
                topic_quotas=tuple((f"{name}/#", Quota(f"{name}.", most)) for name, most in topics.items()),
            ),
            False,
        )
        broker.commit()

    use(3)
    assert refused(one, "a/1", "b/2") + refused(two, "a/4", "b/3") == ["b/2"]
    use(4, a=4)
    assert refused(one, "b/2", "b/4") + refused(two, "a/5", "a/4") == ["b/4", "a/5"]
    use(2, a=5)
    assert refused(two, "b/5", "a/4") == ["b/5"]
    use(0, a=5, b=3)
    assert refused(two, "a/5", "a/6", "b/5") == ["a/6", "b/5"]
    use(0)
    assert refused(one, "a/6", "b/6") + refused(two, "a/7", "b/7") == []
    use(5, a=7)
    assert refused(one, "a/8", "b/8") + refused(two, "b/9", "a/8") == ["a/8", "b/8", "b/9", "a/8"]
    use(0)
    for topic in ("a/6", "b/6"):
        one.publish(topic, b"", 1, True)
    one.got(p.Puback)
    use(5, a=7)
    assert refused(one, "a/8", "b/8") == ["b/8"]


def test_a_first_quota_during_an_import_costs_no_reads_when_the_import_has_ended() -> None:
    broker = MemoryBroker()
    broker.retained.merging(broker.retained.store.next_revision())
    broker.retained.change_limits(RetainerLimits(topic_quotas=(("#", Quota("q.", 9)),)), False)
    client = broker.client("c", 5)
    message = ApplicationMessage("t/2", b"x", 1, True, "c")
    assert refused(client, "t/1") == []
    assert broker.retained.admission.undecided(message) is not None  # during the import no budget is known
    broker.settle()
    broker.retained.merged([], 0)
    assert refused(client, "t/1") == []
    assert broker.retained.admission.undecided(message) is None


@pytest.mark.parametrize("quota", ["policy", "client", "filter"])
def test_a_reload_during_a_look_decides_by_the_new_quota(quota: str) -> None:
    """A message that waits for a read of the store is not refused because a quota became valid meanwhile."""
    before = RetainerLimits(max_retained_messages=5)
    broker = MemoryBroker(store=DelayedStore, retainer=before)
    message = ApplicationMessage("a/1", b"x", 1, True, "c")
    broker.retained.retain(evolve(message, payload=b""), ChangeOrigin.PUBLISH)  # the read waits for its commit
    waiting = broker.retained.admission.undecided(message)
    assert waiting is not None
    waiting.addCallback(lambda _: broker.retained.retain(message, ChangeOrigin.PUBLISH))
    broker.settle()
    assert broker.store.looks
    if quota == "policy":
        broker.retained.change_policies(policies(("a/#", 1)))
    elif quota == "client":
        broker.retained.change_limits(evolve(before, client_quota=Quota("c.", 1)), False)
    else:
        broker.retained.change_limits(evolve(before, topic_quotas=(("a/#", Quota("a.", 1)),)), False)
    for _ in range(2):
        broker.store.commit()
        broker.settle()
    assert waiting.called
    assert broker.store.statistics().count == 1


def test_topics_without_a_policy_stay_in_retained_runs() -> None:
    """A quota of a policy costs them nothing."""
    broker = MemoryBroker(retainer=RetainerLimits(policies=policies(("a/#", 1))))
    assert broker.retained.retains_together
    assert [broker.retained.admission.is_plain(topic) for topic in ("a/1", "b")] == [False, True]
    assert not MemoryBroker(retainer=RetainerLimits(max_retained_messages=9)).retained.retains_together


def test_the_name_of_a_scope_changes_only_with_its_topics() -> None:
    """So an edit of other policies counts nothing anew, neither at a reload nor at a start."""
    (scope,) = policies(("a/#", 1)).counted_filters
    assert scope in policies(("b/#", 1), ("c/a", 0), ("a/#", 7)).counted_filters
    assert scope not in policies(("+/1", 0), ("a/#", 1)).counted_filters
    assert scope not in policies(("a/1", 0), ("a/#", 1)).counted_filters
    (wild,) = policies(("+/x", 1)).counted_filters
    assert wild in policies(("a/y", 0), ("+/x", 1)).counted_filters
    assert wild not in policies(("a/x", 0), ("+/x", 1)).counted_filters
