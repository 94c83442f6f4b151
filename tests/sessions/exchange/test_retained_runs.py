"""Which PUBLISH packets with RETAIN 1 are taken as runs, and what their Client is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.retained.limits import RetainerLimits
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.limits import Limits, RetainMode
from holdfast.wire import Properties, ReasonCode, RetainedRun, encode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The topics of the runs that were retained together."""
    found: list[list[str]] = []
    retain = RetainedMessages.retain_together

    def spy(service: RetainedMessages, topics: list[str], *arguments: Any) -> Any:
        ticket = retain(service, topics, *arguments)
        if ticket is not None:
            found.append(topics)
        return ticket

    monkeypatch.setattr(RetainedMessages, "retain_together", spy)
    return found


def retained(*topics: str, payload: bytes = b"x", qos: int = 1, version: int = 4, **fields: Any) -> bytes:
    return b"".join(
        encode(p.Publish(topic, payload, qos, True, packet_identifier=number if qos else 0, **fields), version)
        for number, topic in enumerate(topics, 1)
    )


def identifiers(packets: list[p.Packet]) -> list[int]:
    return [packet.packet_identifier for packet in packets if isinstance(packet, p.Puback)]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [4, 5])
def test_messages_after_the_first_are_retained_together(qos: int, version: int, together: list[list[str]]) -> None:
    broker = MemoryBroker()
    client = broker.client("p", version)
    client.raw(retained("a", "b", "c", "b", qos=qos, version=version))
    assert together == [["b", "c", "b"]]
    answers = client.packets()
    assert identifiers(answers) == ([1, 2, 3, 4] if qos else [])
    if version == 5:
        assert {answer.reason_code for answer in answers if isinstance(answer, p.Puback)} <= {
            ReasonCode.NO_MATCHING_SUBSCRIBERS
        }
    assert broker.counters.messages_received == 4
    reader = broker.client("r")
    assert [packet.topic for packet in reader.subscribe("#") if isinstance(packet, p.Publish)] == ["a", "b", "c"]


def test_a_topic_with_a_subscriber_ends_the_run(together: list[list[str]]) -> None:
    broker = MemoryBroker()
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("c", "$share/g/f")
    publisher.raw(retained("0", "a", "b", "c", "d", "e", "f", "g", "h"))
    assert together == [["a", "b"], ["d", "e"], ["g", "h"]]
    assert [packet.topic for packet in subscriber.got(p.Publish)] == ["c", "f"]
    assert identifiers(publisher.packets()) == list(range(1, 10))


@pytest.mark.parametrize(
    ("limits", "retainer"),
    [
        (Limits(), RetainerLimits(max_retained_messages=100)),
        (Limits(), RetainerLimits(enable=False)),
        (Limits(), RetainerLimits(max_payload_size=20)),
        (Limits(), RetainerLimits(max_topic_length=3)),
        (Limits(retained_messages_mode=RetainMode.DROP), RetainerLimits()),
        (Limits(retained_messages_mode=RetainMode.DOWNGRADE), RetainerLimits()),
        (Limits(max_topic_levels=1), RetainerLimits()),
    ],
)
def test_limits_are_checked_for_each_message(
    limits: Limits, retainer: RetainerLimits, together: list[list[str]]
) -> None:
    client = MemoryBroker(limits=limits, retainer=retainer).client("p", 5)
    client.raw(retained("a", *["a/b"] * 3, payload=b"x" * 21, version=5))
    assert together == []


@pytest.mark.parametrize(
    "stream",
    [
        retained("a", "b", "c", payload=b""),
        retained("a", "b", "c", qos=2),
        retained("a", "b", "c", dup=True),
        retained("a", "b", "c", version=5, properties=Properties(content_type="t")),
    ],
)
def test_other_packets_form_no_runs(stream: bytes, together: list[list[str]]) -> None:
    client = MemoryBroker().client("p", 5 if b"\x03\x00\x01t" in stream else 4)
    client.raw(stream)
    assert together == []


def test_a_run_ends_at_the_receive_maximum(tmp_path: Path, together: list[list[str]]) -> None:
    broker = RestartableBroker(fresh_file(tmp_path), manual=True, limits=Limits(max_awaiting_rel=4))
    client = broker.client("p", 5)
    client.raw(retained("a", "b", "c", "d", "e", version=5))
    broker.commit()
    assert together == [["b", "c", "d"]]
    assert [packet.reason_code for packet in client.got(p.Disconnect)] == [ReasonCode.RECEIVE_MAXIMUM_EXCEEDED]
    broker.kill()


@pytest.mark.parametrize("version", [4, 5])
def test_only_the_message_whose_row_is_refused_is_not_acknowledged(
    tmp_path: Path, version: int, together: list[list[str]]
) -> None:
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = broker.client("p", version)
    broker.parts.writer._committer.run_outside_transaction(
        lambda connection: connection.cursor().execute(
            "CREATE TRIGGER refused BEFORE INSERT ON retained WHEN NEW.topic = 'bad'"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    )
    client.raw(retained("a", "b", "bad", "c", version=version))
    assert client.packets() == []
    broker.commit()
    assert together == [["b", "bad", "c"]]
    answers = [packet for packet in client.packets() if isinstance(packet, p.Puback)]
    if version == 5:
        assert [(answer.packet_identifier, answer.reason_code >= 0x80) for answer in answers] == [
            (1, False),
            (2, False),
            (3, True),
            (4, False),
        ]
    else:
        assert identifiers(list(answers)) == [1, 2]
        assert client.network.closed
    assert broker.rows("retained") == 3
    broker.kill()


def test_no_run_begins_while_publishers_are_paused_or_would_have_to_be(
    tmp_path: Path, together: list[list[str]]
) -> None:
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = broker.client("p")
    broker.parts.writer._max_pending = 2500
    client.raw(retained("a", "b", "c", "d", "e", "f"))
    assert together == []
    assert broker.parts.writer.pending_bytes > 2500
    broker.commit()
    assert identifiers(client.packets()) == [1, 2, 3, 4, 5, 6]
    broker.kill()


def test_a_run_keeps_nothing_of_the_received_bytes() -> None:
    run = RetainedRun(0, 8, ["a", "b"], [b"1", b"2"], [b"\0\1", b"\0\2"], 1, False)
    assert run.acknowledgements() == b"\x40\x02\0\1\x40\x02\0\2"
    assert not any(isinstance(getattr(run, name), memoryview) for name in RetainedRun.__slots__)
