"""Calls that publish: EMQX's answers, and refusals that name the field."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import succeed

from holdfast.admin.api.publishing import MOST_MESSAGES, PUBLISH_PATH, PublishCalls, PublishLimits
from holdfast.admin.call import Answer, Call, Caller, Scope
from holdfast.admin.routing import RoutingTable
from holdfast.retained.limits import RetainerLimits
from holdfast.sessions.operator_publisher import OperatorMessages, OperatorPublisher
from holdfast.wire import packets as p
from tests.changes.history.recorded import RecordedBroker
from tests.doubles import MemoryBroker
from tests.postgres import synchronous
from tests.storage.doubles import fresh_file, result_of

ALICE = Caller("alice", 1000, frozenset({Scope.PUBLISH}))
BULK = f"{PUBLISH_PATH}/bulk"


class Desk:
    """A broker in memory, and the calls that publish to its clients."""

    def __init__(self, broker: MemoryBroker | None = None, **options: Any) -> None:
        self.broker = broker or MemoryBroker(**options)
        self.notes: list[Any] = []
        messages = OperatorMessages(OperatorPublisher(self.broker.router, self.broker.clock), self.broker.retained)
        self.limits = PublishLimits(max_topic_levels=4, max_bytes=100, max_qos=1, control_characters=False,
                                    retain_available=True)  # fmt: skip
        calls = PublishCalls(messages, lambda: self.limits, self.broker.now, lambda: succeed(None))
        self.table = RoutingTable(calls.routes, lambda _call, told: self.notes.append(told.note))

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Publish, and let the broker do its work; return status and content."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answers: list[Answer] = []
        self.table.answer(Call("POST", path, {}, data, ALICE)).addCallback(answers.append)
        self.broker.settle()
        (found,) = answers
        return found.status, json.loads(found.body)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_message_reaches_its_subscribers_with_its_properties(desk: Desk) -> None:
    """User Properties may be an object, as EMQX has them, or pairs."""
    reader = desk.broker.client("r", 5)
    reader.subscribe("a/#", qos=1)
    properties = {"content_type": "text/plain", "user_properties": {"k": "v"}, "message_expiry_interval": 60}
    body = {"topic": "a/b", "payload": "héllo", "qos": 1, "properties": properties}
    status, content = desk.post(PUBLISH_PATH, body)
    assert status == 200
    assert list(content) == ["id"]
    (received,) = reader.got(p.Publish)
    assert (received.topic, received.payload, received.qos) == ("a/b", "héllo".encode(), 1)
    assert received.properties.user_properties == (("k", "v"),)
    assert (received.properties.content_type, received.properties.message_expiry_interval) == ("text/plain", 60)
    assert desk.notes == [{"topic": "a/b", "retain": False, "id": content["id"]}]


def test_a_message_without_subscribers_is_accepted_as_emqx_does(desk: Desk) -> None:
    status, content = desk.post(PUBLISH_PATH, {"topic": "a", "payload": ""})
    assert (status, content["reason_code"], content["message"]) == (202, 16, "no_matching_subscribers")


def test_a_retained_message_is_stored_when_the_call_is_answered(desk: Desk) -> None:
    """An empty payload clears the topic."""
    payload = b64encode(bytes(range(90))).decode()
    desk.post(PUBLISH_PATH, {"topic": "a", "payload": payload, "payload_encoding": "base64", "retain": True})
    _, stored = desk.broker.client("l").subscribe("a")
    assert isinstance(stored, p.Publish)
    assert (stored.topic, stored.payload, stored.retain) == ("a", bytes(range(90)), True)
    desk.post(PUBLISH_PATH, {"topic": "a", "payload": "", "retain": True})
    assert desk.broker.retained.totals.refreshed().count == 0


BAD = [
    ({"payload": "x"}, "topic"), ({"topic": "a"}, "payload"), ({"topic": "", "payload": "x"}, "topic"),
    ({"topic": "a/+", "payload": "x"}, "topic"), ({"topic": "$SYS/broker", "payload": "x"}, "topic"),
    ({"topic": "$share/g/a", "payload": "x"}, "topic"), ({"topic": "a/b/c/d/e", "payload": "x"}, "topic"),
    ({"topic": "a\u0007", "payload": "x"}, "topic"), ({"topic": "\ud800", "payload": "x"}, "topic"),
    ({"topic": "a", "payload": "x" * 101}, "payload"), ({"topic": "a", "payload": 1}, "payload"),
    ({"topic": "a", "payload": "%", "payload_encoding": "base64"}, "payload"),
    ({"topic": "a", "payload": "x", "payload_encoding": "hex"}, "payload_encoding"),
    ({"topic": "a", "payload": "x", "qos": 2}, "qos"), ({"topic": "a", "payload": "x", "qos": True}, "qos"),
    ({"topic": "a", "payload": "x", "retain": 1}, "retain"), ({"topic": "a", "payload": "x", "colour": 1}, "colour"),
    ({"topic": "a", "payload": "x", "properties": []}, "properties"),
    ({"topic": "a", "payload": "x", "properties": None}, "properties"),
    ({"topic": "a", "payload": "x", "qos": None}, "qos"),
    ({"topic": "a", "payload": "x", "properties": {"topic_alias": 1}}, "topic_alias"),
    ({"topic": "a", "payload": "x", "properties": {"user_properties": {"a": 1}}}, "user_properties"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field"), BAD)
def test_an_invalid_message_is_refused_with_its_field(desk: Desk, body: Any, field: str) -> None:
    """In a bulk, the field has the number of the message, and none is published."""
    reader = desk.broker.client("r")
    reader.subscribe("#")
    status, content = desk.post(PUBLISH_PATH, body)
    assert (status, content["field"]) == (400, field)
    status, content = desk.post(BULK, [{"topic": "good", "payload": "x"}, body])
    assert (status, content["field"]) == (400, f"[1].{field}")
    assert reader.messages() == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"[" * 100_000])
def test_a_body_that_is_no_message_is_refused(desk: Desk, body: bytes) -> None:
    assert desk.post(PUBLISH_PATH, body)[0] == 400


@pytest.mark.parametrize("body", [b"{}", b"[1]", [{"topic": "a", "payload": ""}] * (MOST_MESSAGES + 1)])
def test_a_body_that_is_no_bulk_is_refused(desk: Desk, body: Any) -> None:
    assert desk.post(BULK, body)[0] == 400


def test_a_bulk_is_published_in_its_order(desk: Desk) -> None:
    reader = desk.broker.client("r")
    reader.subscribe("a", qos=1)
    messages = [{"topic": "a", "payload": str(number), "qos": 1} for number in range(MOST_MESSAGES)]
    status, content = desk.post(BULK, messages)
    assert (status, len(content)) == (200, MOST_MESSAGES)
    assert [payload for _, payload, _, _ in reader.messages()] == [b"%d" % number for number in range(MOST_MESSAGES)]
    assert desk.notes == [{"count": MOST_MESSAGES, "topics": ["a"] * 10}]


def test_the_history_names_the_operator_of_a_retained_message(tmp_path: Path) -> None:
    """Alone and in a bulk. The operator is not the publisher of the message."""
    url = f"sqlite:///{fresh_file(tmp_path)}"
    broker = RecordedBroker(lambda now: synchronous(url, now=now)[0])
    desk = Desk(broker)
    desk.post(PUBLISH_PATH, {"topic": "a", "payload": "1", "retain": True})
    desk.post(BULK, [{"topic": topic, "payload": "1", "retain": True} for topic in ("b", "c")])
    events = result_of(broker.history.events("#")).events
    assert [(event.topic, event.operator, event.username) for event in events] == [
        (topic, str(ALICE), None) for topic in ("a", "b", "c")
    ]
    broker.close()


def test_a_message_over_a_limit_of_the_retainer_is_told() -> None:
    """Alone it is refused; in a bulk the others are published all the same."""
    desk = Desk(retainer=RetainerLimits(max_payload_size=5))
    too_long = {"topic": "a", "payload": "123456", "retain": True}
    status, content = desk.post(PUBLISH_PATH, too_long)
    assert (status, content["code"]) == (400, "EXCEED_LIMIT")
    status, content = desk.post(BULK, [too_long, {"topic": "b", "payload": "1", "retain": True}])
    assert status == 202
    assert [each["reason_code"] for each in content] == [0x97, 16]
    assert desk.broker.retained.totals.refreshed().count == 1


@pytest.mark.parametrize("path", [PUBLISH_PATH, BULK])
def test_while_the_database_is_away_only_messages_that_need_it_are_refused(desk: Desk, path: str) -> None:
    """Live messages go on, and of a bulk with one retained message none is published."""
    desk.limits = evolve(desk.limits, can_be_stored=False)
    reader = desk.broker.client("r", 5)
    reader.subscribe("#")
    live, kept = {"topic": "live", "payload": "1"}, {"topic": "kept", "payload": "1", "retain": True}
    assert desk.post(path, [live] if path == BULK else live)[0] == 200
    status, content = desk.post(path, [live, kept] if path == BULK else kept)
    assert (status, content["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert [topic for topic, *_ in reader.messages()] == ["live"]
