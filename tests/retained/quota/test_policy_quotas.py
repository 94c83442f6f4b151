"""Quotas of policies: each topic counts for the policy that applies to it, over reloads and restarts."""

from __future__ import annotations

from pathlib import Path

from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.quota.limits import RetainerLimits
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
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


def test_a_reload_during_a_look_decides_by_the_new_quota() -> None:
    """A message that waits for a read of the store is not refused because a policy got its quota meanwhile."""
    broker = MemoryBroker(retainer=RetainerLimits(max_retained_messages=5))
    message = ApplicationMessage("a/1", b"x", 1, True, "c")
    waiting = broker.retained.undecided(message)
    assert waiting is not None
    broker.retained.change_policies(policies(("a/#", 1)))
    broker.settle()
    assert waiting.called
    broker.retained.retain(message, ChangeOrigin.PUBLISH)
    assert broker.store.statistics().count == 1


def test_topics_without_a_policy_stay_in_retained_runs() -> None:
    """A quota of a policy costs them nothing."""
    broker = MemoryBroker(retainer=RetainerLimits(policies=policies(("a/#", 1))))
    assert broker.retained.retains_together
    assert [broker.retained.is_plain(topic) for topic in ("a/1", "b")] == [False, True]
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
