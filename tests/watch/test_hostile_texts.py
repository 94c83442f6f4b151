"""Hostile texts of clients in the log, in traces and among the broker's own topics."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from holdfast.commands.running import _text
from holdfast.core.terminal import printable, printable_json, safe_json
from holdfast.sessions.limits import Limits
from holdfast.watch.log_output import JSONLines, TextLines
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.hostile_strings import NAMES, TEXTS, obeyed
from tests.logs import logged
from tests.storage.doubles import result_of
from tests.watch.test_lines import event


@pytest.mark.parametrize("text", TEXTS)
def test_every_way_to_print_a_text_leaves_nothing_to_obey(text: str) -> None:
    """JSON is exact all the same."""
    assert not obeyed(printable(text))
    for shown in (printable_json({text: text}), safe_json({text: text}), safe_json([text], (",", ":"))):
        assert not obeyed(shown)
        assert text in json.loads(shown)
        shown.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_a_line_of_the_log_ends_where_the_broker_ends_it(text: str) -> None:
    """Also if somebody has forgotten to escape a client's text. A line within an event is indented."""
    logged_event = event(f"x{text}")
    as_json, as_text = JSONLines()(logged_event), TextLines()(logged_event)
    assert as_json is not None
    assert as_text is not None
    assert obeyed(as_json) == obeyed(as_text) == {"\n"}
    assert as_json.count("\n") == 1
    first, *others = as_text.splitlines()
    assert re.match(r"\d\d:\d\d:\d\d x", first)
    assert all(line.startswith("         ") for line in others)


def busy(broker: MemoryBroker, name: str) -> Client:
    """Do things that are logged, under a name: also forbidden ones."""
    client = broker.client(name, 5, username=name, will=p.Will(name, name.encode()))
    client.subscribe(name)
    client.publish(name, name.encode(), 1, True, Properties(user_properties=((name, name),)))
    client.send(p.Publish(name, b"", 3 - 1, packet_identifier=9))
    broker.client(name, 5)  # takes the Session over
    client.raw(b"\xf0\x00")
    return client


def test_what_clients_do_under_hostile_names_is_a_line_each() -> None:
    broker = MemoryBroker(limits=Limits(control_characters=True))
    with logged() as events:
        for name in NAMES:
            busy(broker, name)
            broker.clock.advance(2)
    assert len(events) >= len(NAMES)
    for each in events:
        for lines in (JSONLines("debug"), TextLines("debug")):
            line = lines(each)
            assert line is None or (line.count("\n") == 1 and obeyed(line) == {"\n"}), line


def test_a_trace_is_a_line_for_each_packet() -> None:
    """As JSON, and as ``holdfast trace`` shows it."""
    broker = MemoryBroker(limits=Limits(control_characters=True))
    traces = broker.session_parts.broker_parts.traces
    for name in NAMES:
        trace = traces.begin(name, 100, 128)
        busy(broker, name)
        taken = result_of(trace.more())
        traces.end(name, trace)
        lines = taken.decode().split("\n")[:-1]
        assert len(lines) >= 5
        assert not obeyed("".join(lines)), name
        shown: list[dict[str, Any]] = [json.loads(line) for line in lines]
        assert name in {each.get("topic") for each in shown}
        assert not obeyed("".join(printable(_text(each)) for each in shown))


def test_the_brokers_own_topics_have_no_text_of_a_client() -> None:
    broker = MemoryBroker(limits=Limits(control_characters=True), sys_msg_interval=1)
    marked = [f"mark{number}{name}" for number, name in enumerate(NAMES)]
    for name in marked:
        busy(broker, name)
    observer = broker.client("observer", 5)
    observer.subscribe("$SYS/#")
    broker.clock.advance(2)
    broker.settle()
    told = observer.messages()
    assert all(topic.startswith("$SYS/") for topic, *_ in told)
    assert not [each for each in told if "mark" in each[0] or b"mark" in each[1]]
