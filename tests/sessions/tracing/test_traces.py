"""Traces: an operator sees all packets of a client, and the client notices nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.interfaces import UnrestrictedAuthorizer
from holdfast.sessions.limits import Limits
from holdfast.sessions.tracing import HEARTBEAT, MOST_A_SECOND, MOST_BUFFERED, MOST_TRACES, CannotTrace, Trace, Traces
from holdfast.wire import Properties, encode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.sessions.test_runs import NAMES, compare


def traces_of(broker: MemoryBroker) -> Traces:
    """The traces of a broker in memory."""
    return broker.session_parts.broker_parts.traces


def lines(trace: Trace) -> list[dict[str, Any]]:
    """What the trace has written since the last look, without the times."""
    got: list[bytes] = []
    waiting = trace.more().addCallback(got.append)
    if not got:
        waiting.addErrback(lambda _: None)
        waiting.cancel()
        return []
    events = [json.loads(line) for line in got[0].splitlines() if line]
    assert all(event.pop("time") for event in events)
    return events


def test_a_trace_has_the_packets_of_both_directions_in_order() -> None:
    """A client that is away is awaited: its CONNECT is the first packet."""
    broker = MemoryBroker()
    trace = traces_of(broker).begin("c", 60, 128)
    client = broker.client("c", 5, username="bob", password=b"secret")
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t", 1),)))
    client.send(p.Publish("t", b"hello", 1, packet_identifier=7))
    broker.settle()
    client.send(p.Disconnect())
    broker.settle()
    seen = [(event["event"], event.get("packet")) for event in lines(trace)]
    assert seen == [
        ("waiting", None), ("connecting", None), ("received", "CONNECT"), ("sent", "CONNACK"),
        ("received", "SUBSCRIBE"), ("sent", "SUBACK"), ("received", "PUBLISH"), ("sent", "PUBLISH"), ("sent", "PUBACK"),
        ("received", "DISCONNECT"), ("disconnected", None),
    ]  # fmt: skip


def test_passwords_are_never_in_a_trace() -> None:
    broker = MemoryBroker()
    trace = traces_of(broker).begin("c", 60, 128)
    broker.client("c", 5, username="bob", password=b"secret")
    text = json.dumps(lines(trace))
    assert '"password": "***"' in text
    assert "secret" not in text


def test_a_refused_connect_is_in_the_trace_with_its_answer() -> None:
    """This is why a trace of a client that never gets in helps."""
    broker = MemoryBroker(limits=Limits(max_clientid_len=3))
    trace = traces_of(broker).begin("long", 60, 128)
    broker.client("long", 5)
    last = [event for event in lines(trace) if event["event"] == "sent"][-1]
    assert last["packet"] == "CONNACK"
    assert last["reason_code"].startswith("0x85")


@pytest.mark.parametrize("payload_bytes", [0, 3])
def test_so_much_of_the_payload_is_shown_as_was_asked(payload_bytes: int) -> None:
    broker = MemoryBroker()
    client = broker.client("c", 5)
    trace = traces_of(broker).begin("c", 60, payload_bytes)
    client.send(p.Publish("t", b"h\xffllo", 0))
    (event,) = [event for event in lines(trace) if event["event"] == "received"]
    assert event.pop("packet") == "PUBLISH"
    assert event["size"] == 5
    assert event.get("payload") == {0: None, 3: "h\\xffl"}[payload_bytes]


def test_beyond_a_rate_packets_are_counted_only() -> None:
    """So one trace of a busy client costs the others little."""
    broker = MemoryBroker()
    client = broker.client("c", 4)
    trace = traces_of(broker).begin("c", 60, 128)
    lines(trace)
    client.raw(b"".join(encode(p.Publish("t", b"%d" % number), 4) for number in range(MOST_A_SECOND + 40)))
    broker.settle()
    written = len(lines(trace))
    assert written <= MOST_A_SECOND
    broker.advance(1)
    client.send(p.Pingreq())
    (event, *_) = lines(trace)
    assert written + event["left_out"] == MOST_A_SECOND + 40


def test_a_reader_that_takes_nothing_costs_a_bounded_amount_of_memory() -> None:
    broker = MemoryBroker()
    client = broker.client("c", 4)
    trace = traces_of(broker).begin("c", 3600, 65536)
    for _ in range(60):
        client.raw(encode(p.Publish("t", b"x" * 60_000), 4))
        broker.settle()
        broker.advance(1)
    assert len(json.dumps(lines(trace))) < 2 * MOST_BUFFERED


def test_a_waiting_reader_gets_a_line_at_once_and_an_empty_one_when_nothing_happens() -> None:
    broker = MemoryBroker()
    client = broker.client("c", 4)
    trace = traces_of(broker).begin("c", 60, 128)
    lines(trace)
    got: list[bytes] = []
    trace.more().addCallback(got.append)
    broker.advance(HEARTBEAT)
    assert got == [b"\n"]
    trace.more().addCallback(got.append)
    client.send(p.Pingreq())
    assert b"PINGREQ" in got[1]


def test_a_trace_ends_after_its_time_and_shows_nothing_more() -> None:
    broker = MemoryBroker()
    client = broker.client("c", 4)
    trace = traces_of(broker).begin("c", 10, 128)
    lines(trace)
    got: list[bytes] = []
    trace.more().addCallback(got.append)
    broker.advance(10)
    client.send(p.Pingreq())
    assert got == [b""]
    assert lines(trace) == []


def test_traces_are_few_and_one_client_has_one() -> None:
    broker = MemoryBroker()
    traces = traces_of(broker)
    first = traces.begin("0", 10, 0)
    with pytest.raises(CannotTrace, match="traced already"):
        traces.begin("0", 10, 0)
    for number in range(1, MOST_TRACES):
        traces.begin(str(number), 10, 0)
    with pytest.raises(CannotTrace, match=str(MOST_TRACES)):
        traces.begin("more", 10, 0)
    traces.end("0", first)
    traces.begin("more", 10, 0)


@given(st.data())
def test_clients_notice_nothing(data: st.DataObject) -> None:
    """Traces begin and end at any time: each client receives the same packets, and everything is counted alike."""
    running: dict[str, Trace] = {}

    def begin_or_end(data: st.DataObject, broker: MemoryBroker) -> None:
        name = data.draw(st.sampled_from(NAMES), label="traced")
        if name in running:
            traces_of(broker).end(name, running.pop(name))
        else:
            running[name] = traces_of(broker).begin(name, 3600, 16)

    def broker(_traced: bool, limits: Limits) -> MemoryBroker:
        return MemoryBroker(limits=limits, authorizer=UnrestrictedAuthorizer())

    compare(data, broker, begin_or_end)


def test_lists_and_properties_are_shown_under_the_names_of_the_standard() -> None:
    broker = MemoryBroker()
    client = broker.client("c", 5)
    trace = traces_of(broker).begin("c", 60, 128)
    lines(trace)
    client.send(
        p.Subscribe(
            1, (p.SubscriptionRequest("a/+", 2, no_local=True),), Properties(user_properties=(("k", "v\u202e"),))
        )
    )
    event = lines(trace)[0]
    assert event["packet"] == "SUBSCRIBE"
    assert "a/+" in json.dumps(event)
    assert event["properties"] == {"user_properties": [["k", "v\u202e"]]}
