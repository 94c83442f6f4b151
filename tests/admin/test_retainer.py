"""The API for retained messages: EMQX's paths and shapes, bounded answers, and errors of one line."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail
from twisted.logger import LogEvent

from holdfast.admin.address import API_PREFIX
from holdfast.admin.call import Answer, Call
from holdfast.admin.callers import this_operator
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.store.values import Listing
from holdfast.wire import Properties
from holdfast.wire.packets import Publish
from tests.admin.doubles import Desk
from tests.retained.store.delayed_store import DelayedStore


def test_a_listed_message_has_emqx_s_fields_and_more() -> None:
    desk = Desk()
    desk.retain("a/b", b"12", qos=1, properties=Properties(content_type="t", message_expiry_interval=60))
    page = desk.ask("GET", "/messages")
    assert page["meta"] == {"page": 1, "limit": 100, "hasnext": False, "cursor": None, "count": 1}
    (row,) = page["data"]
    assert int(row.pop("msgid"), 16) == int(row.pop("revision"))
    assert row.pop("publish_at") == "2027-01-15T08:00:00.000Z"
    assert row.pop("expiry_at") == "2027-01-15T08:01:00.000Z"
    assert row == {
        "topic": "a/b", "qos": 1, "from_clientid": "publisher", "from_username": None, "size": 2,
        "properties": {"content_type": "t"},
    }  # fmt: skip


def test_pages_by_number_and_by_cursor() -> None:
    """In topic order. The page after a cursor begins after the cursor's topic, also if earlier topics change."""
    desk = Desk()
    for number in range(7):
        desk.retain(f"t/{number}")
    assert desk.topics(topic="t/+", limit="3", page="2") == ["t/3", "t/4", "t/5"]
    first = desk.ask("GET", "/messages", topic="t/#", limit="3")
    assert first["meta"] == {"page": 1, "limit": 3, "hasnext": True, "cursor": "t/2"}
    desk.retain("t/00")
    desk.retain("t/1", b"")
    rest = desk.ask("GET", "/messages", topic="t/#", limit="4", cursor="t/2")
    assert [row["topic"] for row in rest["data"]] == ["t/3", "t/4", "t/5", "t/6"]
    assert rest["meta"]["hasnext"] is False
    assert desk.topics(page="100000000") == []


@given(st.lists(st.tuples(st.integers(0, 29), st.booleans()), max_size=30), st.integers(1, 5))
def test_an_unchanged_message_is_listed_once_despite_changes_between_pages(
    changes: list[tuple[int, bool]], limit: int
) -> None:
    """A page begins after the last topic of the page before."""
    desk = Desk()
    publisher = desk.broker.client("publisher")
    for number in range(0, 30, 2):
        publisher.publish(f"t/{number:02}", b"x", retain=True)
    stays = {f"t/{number:02}" for number in range(0, 30, 2)} - {f"t/{number:02}" for number, _ in changes}
    seen: list[str] = []
    arguments = {"topic": "t/#", "limit": str(limit)}
    for _ in range(40):
        page = desk.ask("GET", "/messages", **arguments)
        seen += [row["topic"] for row in page["data"]]
        if not page["meta"]["hasnext"]:
            break
        arguments["cursor"] = page["meta"]["cursor"]
        if changes:
            number, there = changes.pop()
            publisher.publish(f"t/{number:02}", b"y" if there else b"", retain=True)
    assert seen == sorted(set(seen))
    assert stays <= set(seen)


def test_everything_is_listed_without_a_filter() -> None:
    """Also topics that begin with $."""
    desk = Desk()
    desk.retain("$a")
    desk.retain("b")
    assert desk.topics() == ["$a", "b"]
    assert desk.topics(topic="#") == ["b"]


def test_a_message_is_shown_by_its_topic() -> None:
    """The topic is in the path, percent-encoded or not. A filter shows the first matching message."""
    desk = Desk()
    desk.retain("a//b c", b"\0\xff")
    for path in ("/message/a%2F%2Fb%20c", "/message/a//b%20c", "/message/%23"):
        shown = desk.ask("GET", path)
        assert (shown["topic"], shown["payload"]) == ("a//b c", "AP8=")
    assert desk.refused("GET", "/message/a") == (404, "NOT_FOUND", "Viewed message doesn't exist")


def test_a_payload_above_a_mebibyte_is_not_shown() -> None:
    desk = Desk(retainer=RetainerLimits(max_payload_size=0))
    desk.ask("POST", "/messages", {"topic": "small", "payload": "x" * (1 << 20)})
    assert "payload" in desk.ask("GET", "/message/small")
    desk.ask("POST", "/messages", {"topic": "large", "payload": "x" * ((1 << 20) + 1)})
    shown = desk.ask("GET", "/message/large")
    assert (shown["size"], "payload" in shown) == ((1 << 20) + 1, False)


def test_a_message_is_retained_for_new_subscribers() -> None:
    """With its properties, and quietly: present subscribers do not get it."""
    desk = Desk()
    present = desk.broker.client("present", 5)
    present.subscribe("#")
    properties = {"content_type": "t", "user_properties": [["a", "b"]], "message_expiry_interval": 9}
    body = {"topic": "a/b", "payload": "AP8=", "payload_encoding": "base64", "qos": 1, "properties": properties}
    assert desk.ask("POST", "/messages", {**body, "quiet": True}) is None
    assert present.messages() == []
    (got,) = [packet for packet in desk.broker.client("new", 5).subscribe("#") if isinstance(packet, Publish)]
    assert (got.topic, got.payload) == ("a/b", b"\0\xff")
    assert got.properties == Properties(content_type="t", user_properties=(("a", "b"),), message_expiry_interval=9)
    assert desk.ask("POST", "/messages", {"topic": "plain", "payload": "\0é"}) is None
    assert desk.ask("GET", "/message/plain")["payload"] == b64encode("\0é".encode()).decode()
    assert desk.ask("GET", "/info")["api"] == {"set": 2, "cleared": 0, "imported": 0}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "not JSON"),
        ("\xff", "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("9" * 10_000, "too many digits"),
        ('{"topic": "a", "topic": "b", "payload": "x"}', "topic: occurs twice"),
        ("[]", "not a JSON object"),
        ({"payload": "x"}, "topic: is missing"),
        ({"topic": "a"}, "payload: is missing"),
        ({"topic": "a", "payload": ""}, "payload: is empty"),
        ({"topic": "a", "payload": 1}, "payload: is not a string"),
        ({"topic": "a", "payload": "-", "payload_encoding": "base64"}, "payload: is not base64"),
        ({"topic": "a", "payload": "é", "payload_encoding": "base64"}, "payload: is not base64"),
        ({"topic": "a", "payload": "a", "payload_encoding": "hex"}, "payload_encoding: is plain or base64"),
        ({"topic": "a/+", "payload": "x"}, "wildcard"),
        ({"topic": "#", "payload": "x"}, "wildcard"),
        ({"topic": "", "payload": "x"}, "at least one character"),
        ({"topic": "a\0", "payload": "x"}, "topic: contains U+0000"),
        ({"topic": "\ud800", "payload": "x"}, "surrogate"),
        ({"topic": "a", "payload": "\udfff"}, "surrogate"),
        ({"topic": "é" * 40_000, "payload": "x"}, "topic: has 80000 bytes"),
        ({"topic": "$SYS/a", "payload": "x"}, "the broker's own"),
        ({"topic": "a", "payload": "x", "qos": 3}, "qos: is not a whole number from 0 to 2"),
        ({"topic": "a", "payload": "x", "qos": True}, "qos: is not"),
        ({"topic": "a", "payload": "x", "qos": 1.0}, "qos: is not"),
        ({"topic": "a", "payload": "x", "retain": True}, "retain: there is no such key"),
        ({"topic": "a", "payload": "x", "properties": []}, "properties: is not a JSON object"),
        ({"topic": "a", "payload": "x", "properties": {"topic_alias": 1}}, "topic_alias: there is no such key"),
        ({"topic": "a", "payload": "x", "properties": {"payload_format_indicator": 2}}, "properties.payload_format"),
        ({"topic": "a", "payload": "x", "properties": {"response_topic": "#"}}, "response_topic may not be"),
        ({"topic": "a", "payload": "x", "properties": {"response_topic": ""}}, "at least one character"),
        ({"topic": "a", "payload": "x", "properties": {"message_expiry_interval": 2**32}}, "expiry_interval: is"),
        ({"topic": "a", "payload": "x", "properties": {"user_properties": [["a"]]}}, "pairs of strings"),
        ({"topic": "a", "payload": "x", "properties": {"user_properties": {"a": "b"}}}, "pairs of strings"),
        ({"topic": "a", "payload": "x", "properties": {"user_properties": [["a", "\0"]]}}, "properties: "),
        ({"topic": "a", "payload": "x", "properties": {"user_properties": [["a", "x" * 70_000]]}}, "properties: "),
    ],
)  # fmt: skip
def test_an_invalid_message_is_refused(body: str | dict[str, object], says: str) -> None:
    desk = Desk()
    status, code, message = desk.refused(
        "POST", "/messages", body if isinstance(body, dict) else body.encode("latin-1")
    )
    assert (status, code) == (400, "BAD_REQUEST")
    assert says in message
    assert len(message) < 200
    assert message.isascii()
    assert desk.topics() == []


def test_limits_hold_for_the_api_too() -> None:
    desk = Desk(retainer=RetainerLimits(max_payload_size=3, max_retained_messages=1))
    status, code, message = desk.refused("POST", "/messages", {"topic": "a", "payload": "1234"})
    assert (status, code) == (400, "EXCEED_LIMIT")
    assert "retainer.max_payload_size is 3" in message
    desk.ask("POST", "/messages", {"topic": "a", "payload": "1"})


def test_nothing_is_retained_if_the_retainer_is_disabled() -> None:
    desk = Desk(retainer=RetainerLimits(enable=False))
    assert desk.refused("POST", "/messages", {"topic": "a", "payload": "1"})[:2] == (400, "EXCEED_LIMIT")


def test_clearing() -> None:
    """EMQX's calls answer 204; a call with a filter in the query string answers with the number."""
    desk = Desk()
    for topic in ("a/1", "a/2", "b/1", "b/2", "c", "$d", "$e"):
        desk.retain(topic)
    meta = {"hasnext": False, "cursor": None}
    assert desk.ask("DELETE", "/messages", topic="a/+", dry_run="true") == {"count": 2, "dry_run": True, "meta": meta}
    assert desk.topics(topic="a/+") == ["a/1", "a/2"]
    assert desk.ask("DELETE", "/messages", topic="a/+") == {"count": 2, "dry_run": False, "meta": meta}
    assert desk.answer("DELETE", "/message/b%2F1").status == 204
    assert desk.refused("DELETE", "/message/b%2F1")[:2] == (404, "NOT_FOUND")
    assert desk.answer("DELETE", "/message/b%2F+").status == 204
    assert desk.topics() == ["$d", "$e", "c"]
    assert desk.answer("DELETE", "/messages").status == 204
    assert desk.topics() == []
    assert desk.ask("GET", "/info")["api"]["cleared"] == 7


def test_clearing_in_parts() -> None:
    desk = Desk()
    for number in range(5):
        desk.retain(f"t/{number}")
    first = desk.ask("DELETE", "/messages", topic="t/#", limit="2")
    assert (first["count"], first["meta"]) == (2, {"hasnext": True, "cursor": "t/1"})
    rest = desk.ask("DELETE", "/messages", topic="t/#", limit="9", cursor="t/1")
    assert (rest["count"], rest["meta"]["hasnext"]) == (3, False)


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_no_body_causes_an_internal_error(body: bytes) -> None:
    desk = Desk()
    assert desk.answer("POST", "/messages", body).status == 400
    assert desk.topics() == []


@given(
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "BREW"]),
    st.sampled_from(["", "/messages", "/message/", "/message", "/info", "/export", "/message/%ff", "x"]),
    st.text(max_size=5),
    st.dictionaries(
        st.sampled_from(["topic", "limit", "page", "cursor", "dry_run", "merge", "x"]), st.text(max_size=9)
    ),
)
def test_no_call_causes_an_internal_error(method: str, path: str, more: str, arguments: dict[str, str]) -> None:
    desk = Desk()
    desk.retain("a")
    answer = desk.answer(method, path + more, b"", **arguments)
    assert answer.status in (200, 204, 400, 404, 405)


@pytest.mark.parametrize(
    ("method", "path", "arguments", "status", "code"),
    [
        ("GET", "/nothing", {}, 404, "NOT_FOUND"),
        ("PATCH", "/messages", {}, 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "", {}, 400, "UPDATE_FAILED"),
        ("GET", "/messages", {"topic": ""}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"topic": "a#"}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"topic": "a\0"}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"cursor": "a\0"}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"limit": "10001"}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"limit": "0"}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"limit": "٣"}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"page": "-1"}, 400, "BAD_REQUEST"),
        ("GET", "/messages", {"page": "9" * 5000}, 400, "BAD_REQUEST"),
        ("DELETE", "/messages", {"topc": "a"}, 400, "BAD_REQUEST"),
        ("DELETE", "/messages", {"dry_run": "true"}, 400, "BAD_REQUEST"),
        ("DELETE", "/messages", {"topic": "a", "dry_run": "yes"}, 400, "BAD_REQUEST"),
        ("GET", "/message/%ff", {}, 400, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_invalid_calls_are_refused(method: str, path: str, arguments: dict[str, str], status: int, code: str) -> None:
    """They change nothing: a DELETE with a misspelt argument does not clear all topics."""
    desk = Desk()
    desk.retain("a")
    assert desk.refused(method, path, **arguments)[:2] == (status, code)
    assert desk.topics() == ["a"]


def test_a_refusal_names_the_allowed_methods() -> None:
    assert Desk().answer("PATCH", "/messages").headers == (("Allow", "GET, POST, DELETE"),)


def test_an_unavailable_database_is_reported() -> None:
    """Not where it is: that is for the log."""
    desk = Desk()
    failure = StorageFailure(FailureKind.UNAVAILABLE, "gone", "postgresql://holdfast@db.example/holdfast")
    desk.broker.store.listing = lambda *_: fail(failure)
    assert desk.refused("GET", "/messages") == (503, "SERVICE_UNAVAILABLE", "gone")
    assert desk.ask("GET", "/info")["available"] is True
    desk.broker.store.available = False
    assert desk.ask("GET", "/info")["available"] is False


def test_a_change_that_cannot_be_stored_is_reported() -> None:
    desk = Desk(store=DelayedStore)
    answers: list[Answer] = []
    body = json.dumps({"topic": "a", "payload": "1"}).encode()
    desk.table.answer(Call("POST", API_PREFIX + "/messages", {}, body, this_operator())).addCallback(answers.append)
    assert answers == []
    desk.broker.store.commit(StorageFailure(FailureKind.FULL, "no space left"))
    assert (answers[0].status, json.loads(answers[0].body)["message"]) == (503, "no space left")


def test_an_internal_error_shows_no_details(logged_failures: list[LogEvent]) -> None:
    desk = Desk()
    desk.broker.store.listing = lambda *_: fail(ZeroDivisionError("secret"))
    status, code, message = desk.refused("GET", "/messages")
    assert (status, code) == (500, "INTERNAL_ERROR")
    assert "secret" not in message
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_a_cancelled_call_stops() -> None:
    desk = Desk()
    waiting: list[Deferred[Listing]] = []

    def listing(*_: object) -> Deferred[Listing]:
        waiting.append(Deferred())
        return waiting[-1]

    desk.broker.store.listing = listing
    outcome: list[object] = []
    call = Call("GET", API_PREFIX + "/messages", {}, b"", this_operator())
    answering = desk.table.answer(call).addBoth(outcome.append)
    answering.cancel()
    assert len(outcome) == 1
    assert len(waiting) == 1
