"""The memory of the process is limited: clients are refused, and the costliest ones disconnected."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.sessions.limits import Limits
from holdfast.sessions.memory_guard import LEAST_HELD, MemoryUnknown, available_bytes, resident_bytes
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.logs import logged

MOST = 1000
BIG = Limits(max_packet_size=8 << 20)


def guarded() -> MemoryBroker:
    broker = MemoryBroker(limits=BIG, most_memory=MOST)
    assert broker.memory_guard is not None
    broker.memory_guard.startService()
    broker.settle()
    return broker


def at(broker: MemoryBroker, memory: int, seconds: float = 1) -> None:
    """Let the process have so much memory, and time pass."""
    broker.memory = memory
    broker.advance(seconds)


def blocked(broker: MemoryBroker, client_id: str, size: int) -> Client:
    """Return a client that reads nothing, for which so many bytes wait."""
    client = broker.client(client_id, 5)
    client.subscribe("big/" + client_id)
    client.network.blocked = True
    broker.client("p", 5).publish("big/" + client_id, b"x" * size)
    return client


@pytest.mark.parametrize(("version", "refused"), [(3, 3), (4, 3), (5, ReasonCode.SERVER_BUSY)])
def test_clients_are_refused_from_90_percent_until_below_85(version: int, refused: int) -> None:
    broker = guarded()
    there = broker.client("there", 5)
    answers = []
    for memory in (899, 900, 860, 850, 849, 899):
        at(broker, memory)
        connack = broker.client(f"c{memory}", version).connack
        assert connack is not None
        answers.append(connack.reason_code)
    assert answers == [0, refused, refused, refused, 0, 0]
    assert broker.counters.connections_over_memory == 3
    assert broker.counters.logins_failed == 0
    assert not there.network.closed


def test_the_costliest_client_is_disconnected_and_named() -> None:
    broker = guarded()
    small, large = blocked(broker, "small", LEAST_HELD), blocked(broker, "large", 3 * LEAST_HELD)
    with logged() as events:
        at(broker, 950)
    assert (small.network.closed, large.network.closed) == (False, True)
    last = large.got(p.Disconnect)[-1]
    assert last.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert [event["client"] for event in events if "held" in event] == ["'large'"]
    assert broker.counters.clients_over_memory == 1
    at(broker, 949, 100)
    assert not small.network.closed


def test_clients_with_little_are_never_disconnected() -> None:
    broker = guarded()
    client = blocked(broker, "c", LEAST_HELD - 1000)
    at(broker, 2000, 100)
    assert not client.network.closed


def test_a_session_that_waits_for_its_client_counts() -> None:
    broker = guarded()
    client = broker.client("c", 5, properties=Properties(receive_maximum=1))
    client.subscribe("t", qos=1)
    publisher = broker.client("p", 5)
    for _ in range(5):
        publisher.publish("t", b"x" * LEAST_HELD, 1)
    at(broker, 990)
    assert client.network.closed
    assert not publisher.network.closed


def test_while_memory_does_not_fall_the_pauses_grow() -> None:
    broker = guarded()
    clients = [blocked(broker, f"c{number}", 2 * LEAST_HELD) for number in range(20)]
    at(broker, 980, 100)
    assert sum(client.network.closed for client in clients) < 8


def test_while_memory_falls_one_client_leaves_in_a_second() -> None:
    broker = guarded()
    clients = [blocked(broker, f"c{number}", 2 * LEAST_HELD) for number in range(6)]
    for number in range(4):
        at(broker, 990 - number)
    assert sum(client.network.closed for client in clients) == 4


def test_the_memory_that_the_process_may_have_is_the_least_of_its_groups(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "sys/fs/cgroup/system.slice/holdfast.service"
    (proc / "self").mkdir(parents=True)
    group.mkdir(parents=True)
    with pytest.raises(MemoryUnknown):
        available_bytes(tmp_path)
    (proc / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 1 kB\n")
    assert available_bytes(tmp_path) == 2 << 20
    (proc / "self/cgroup").write_text("0::/system.slice/holdfast.service\n")
    (group / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path) == 2 << 20
    (group.parent / "memory.max").write_text("1048576\n")
    assert available_bytes(tmp_path) == 1 << 20


def test_this_process_has_memory() -> None:
    assert 1 << 20 < resident_bytes() < available_bytes()
