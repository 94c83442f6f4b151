"""Stored Sessions that move between real members of a cluster: with their client, and from a member that is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.raw import RawClient
from tests.e2e.test_cluster import member
from tests.e2e.test_cluster_messages import messages, publish, subscribe
from tests.processes import BrokerProcess

__all__ = ["member"]
pytestmark = [pytest.mark.e2e, pytest.mark.crash]

Member = Callable[..., BrokerProcess]


def take(client: RawClient, count: int) -> Counter[int]:
    """Return the next messages of a client by their payloads."""
    received: Counter[int] = Counter()
    for message in messages(client):
        received[int(message.payload)] += 1
        if sum(received.values()) == count:
            break
    return received


def test_a_session_follows_its_client(member: Member, url: str) -> None:
    """From member to member and back, while messages are published at both: each comes once."""
    brokers = [member(1, url).start(), member(2, url).start()]
    device = RawClient(brokers[0].port, "device", clean=False)
    subscribe(device, "jobs/#")
    publishers = [RawClient(broker.port, f"publisher {number}") for number, broker in enumerate(brokers)]
    number = 0
    for turn in range(1, 6):
        sent = []
        for publisher in publishers:
            for _ in range(5):
                number += 1
                publish(publisher, "jobs/1", b"%d" % number, 2, number=number)
                sent.append(number)
        device = RawClient(brokers[turn % 2].port, "device", clean=False)
        assert take(device, len(sent)) == Counter(sent)
        if turn % 2:
            device.close()
    assert [broker.stop() for broker in brokers] == [(0, ""), (0, "")]


def test_the_session_of_a_killed_member_goes_on_at_another_one(member: Member, url: str) -> None:
    """With what was stored before, what came while it was dead, and what comes then; and it moves back."""
    one, two = member(1, url).start(), member(2, url).start()
    device = RawClient(two.port, "device", clean=False)
    subscribe(device, "jobs/#")
    publisher = RawClient(one.port, "publisher")
    device.close()
    for number in range(1, 6):
        publish(publisher, "jobs/before", b"%d" % number, 2, number=number)
    two.kill()
    for number in range(6, 11):
        publish(publisher, "jobs/dead", b"%d" % number, 2, number=number)
    one.wait_for("node 2 is dead")
    device = RawClient(one.port, "device", clean=False)
    for number in range(11, 16):
        publish(publisher, "jobs/taken over", b"%d" % number, 2, number=number)
    assert take(device, 15) == Counter(range(1, 16))
    two.start()
    device = RawClient(two.port, "device", clean=False)
    publish(publisher, "jobs/back", b"16", 2, number=16)
    assert take(device, 1) == Counter([16])
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]
