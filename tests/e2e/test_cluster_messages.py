"""Messages that cross between two members of a cluster: each QoS, retained ones, groups, a member that is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.e2e.test_cluster import member, rows
from tests.processes import BrokerProcess

__all__ = ["member"]
pytestmark = [pytest.mark.e2e, pytest.mark.crash]

Member = Callable[..., BrokerProcess]


def subscribe(client: RawClient, *filters: str, qos: int = 2) -> None:
    """Subscribe, and wait for SUBACK. Messages before it are dropped."""
    client.send(p.Subscribe(9, tuple(p.SubscriptionRequest(each, qos) for each in filters)))
    assert any(isinstance(packet, p.Suback) for packet in client.packets())


def publish(client: RawClient, topic: str, payload: bytes, qos: int, retain: bool = False, number: int = 1) -> None:
    """Publish a message, and wait until it is acknowledged."""
    client.send(p.Publish(topic, payload, qos, retain, packet_identifier=number if qos else 0))
    if qos == 1:
        assert isinstance(next(client.packets()), p.Puback)
    elif qos == 2:
        assert isinstance(next(client.packets()), p.Pubrec)
        client.send(p.Pubrel(number))
        assert isinstance(next(client.packets()), p.Pubcomp)


def messages(client: RawClient) -> Iterator[p.Publish]:
    """Yield the messages of a client, and acknowledge them."""
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            if packet.qos == 1:
                client.send(p.Puback(packet.packet_identifier or 0))
            elif packet.qos == 2:
                client.send(p.Pubrec(packet.packet_identifier or 0))
            yield packet
        elif isinstance(packet, p.Pubrel):
            client.send(p.Pubcomp(packet.packet_identifier))


def test_a_subscriber_gets_the_messages_of_publishers_at_another_member(member: Member, url: str) -> None:
    """With each QoS, with and without RETAIN, in the order of their topic and QoS [MQTT-4.6.0-2]."""
    one, two = member(1, url).start(), member(2, url).start()
    watcher, publisher = RawClient(two.port, "watcher"), RawClient(one.port, "publisher")
    subscribe(watcher, "plant/#")
    sent = []
    for number in range(1, 31):
        topic, payload, qos = f"plant/{number % 3}", b"%d" % number, (number // 3) % 3
        publish(publisher, topic, payload, qos, number % 5 == 0, number)
        sent.append((topic, payload, qos))
    received = []
    for message in messages(watcher):
        received.append((message.topic, message.payload, message.qos))
        if len(received) == len(sent):
            break
    for topic in ("plant/0", "plant/1", "plant/2"):
        for qos in (0, 1, 2):
            of_one = [each for each in sent if (each[0], each[2]) == (topic, qos)]
            assert [each for each in received if (each[0], each[2]) == (topic, qos)] == of_one
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def test_a_replay_is_not_followed_by_an_older_message(member: Member, url: str) -> None:
    """A subscriber of one member joins while a client of another one counts up: no counter falls."""
    one, two = member(1, url).start(), member(2, url).start()
    publisher = RawClient(one.port, "publisher")
    for number in range(1, 200):
        publish(publisher, "count/er", b"%d" % number, 1, True, number)
        if number % 20 == 0:
            watcher = RawClient(two.port, f"watcher {number}")
            watcher.send(p.Subscribe(9, (p.SubscriptionRequest("count/+", 1),)))
            publish(publisher, "count/er", b"%d" % (1000 * number), 1, True, 1000)
            last = 0
            for message in messages(watcher):
                assert int(message.payload) >= last
                last = int(message.payload)
                if last == 1000 * number:
                    break
            publish(publisher, "count/er", b"0", 1, True, 1001)
            watcher.close()
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def test_a_stored_session_of_a_killed_member_gets_what_was_acknowledged_meanwhile(member: Member, url: str) -> None:
    """Once each with QoS 2: those from before the kill, and those that came while its member was dead."""
    one, two = member(1, url).start(), member(2, url).start()
    device = RawClient(two.port, "device", clean=False)
    subscribe(device, "jobs/#")
    device.close()
    publisher = RawClient(one.port, "publisher")
    for number in range(1, 11):
        publish(publisher, "jobs/before", b"%d" % number, 2, number=number)
    two.kill()
    for number in range(11, 21):
        publish(publisher, "jobs/dead", b"%d" % number, 2, number=number)
    one.wait_for("node 2 is dead")
    for number in range(21, 31):
        publish(publisher, "jobs/taken over", b"%d" % number, 2, number=number)
    two.start()
    device = RawClient(two.port, "device", clean=False)
    received: Counter[int] = Counter()
    for message in messages(device):
        received[int(message.payload)] += 1
        if len(received) == 30:
            break
    assert received == Counter(range(1, 31))
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def test_a_message_goes_to_one_member_of_a_group_on_several_nodes(member: Member, url: str) -> None:
    """Each node has turns as it has members."""
    one, two = member(1, url).start(), member(2, url).start()
    workers = [RawClient(broker.port, f"worker {number}") for number, broker in enumerate((one, two, two))]
    for worker in workers:
        subscribe(worker, "$share/workers/jobs", qos=1)
    publisher = RawClient(one.port, "publisher")
    for number in range(30):
        publish(publisher, "jobs", b"%d" % number, 1, number=number + 1)
    found: Counter[int] = Counter()
    for worker in workers:
        for count, message in enumerate(messages(worker), 1):
            found[int(message.payload)] += 1
            if count == 10:
                break
    assert found == Counter(range(30))
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def test_two_members_that_set_one_topic_agree_in_the_end(member: Member, url: str) -> None:
    """The last message that each subscriber gets is the retained one."""
    one, two = member(1, url).start(), member(2, url).start()
    watchers = [RawClient(broker.port, f"watcher {broker.port}") for broker in (one, two)]
    for watcher in watchers:
        subscribe(watcher, "both", qos=1)
    clients = {name: RawClient(broker.port, name) for name, broker in (("left", one), ("right", two))}
    for number in range(1, 40):
        for name, client in clients.items():
            client.send(p.Publish("both", f"{name} {number}".encode(), 1, True, packet_identifier=number))
    for client in clients.values():
        for number, packet in enumerate(client.packets(), 1):
            assert isinstance(packet, p.Puback)
            if number == 39:
                break
    ((stored,),) = rows(url, "SELECT payload FROM retained WHERE topic = 'both'")
    for watcher in watchers:
        seen = [message.payload for _, message in zip(range(79), messages(watcher), strict=False)]  # and a correction
        assert seen[-1] == bytes(stored)
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]
