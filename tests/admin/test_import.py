"""``POST /import``: the lines of an export are staged in memory and merged like any import, on both databases."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.python.failure import Failure

from holdfast.admin.api import merging
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained.feed import Change
from holdfast.retained.import_jobs import read_job
from holdfast.retained.importing import MergedPart
from holdfast.retained.limits import RetainerLimits
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.admin.doubles import Desk
from tests.admin.stored import stored_desk
from tests.pipeline.stores import MAKES
from tests.replay.test_replay import SMALL
from tests.storage.doubles import result_of


def line(topic: str, payload: bytes = b"x", **fields: Any) -> str:
    """Return a line to import."""
    return json.dumps({"topic": topic, "payload": b64encode(payload).decode(), **fields}) + "\n"


def test_an_import_restores_an_export(stored: Desk) -> None:
    """Payload, properties, expiry, publisher and time are the same bytes. A second import changes nothing."""
    properties = Properties(
        payload_format_indicator=0, content_type="é", response_topic="r", correlation_data=b"\0\xff",
        user_properties=(("k", "v"), ("k", "w")), message_expiry_interval=600,
    )  # fmt: skip
    stored.retain("a/b", bytes(range(256)), qos=2, properties=properties)
    stored.retain("$x", b"\n")
    stored.retain("é/ /\U0010fffd")
    exported = stored.export()
    assert len(exported.splitlines()) == 3
    assert stored.export(topic="a/+") in exported
    topics = ("a/b", "$x", "é/ /\U0010fffd")
    before = {topic: result_of(stored.broker.store.get(topic)) for topic in topics}
    stored.ask("DELETE", "/messages")
    stored.broker.advance(5)
    told = stored.ask("POST", "/import", exported, merge="replace")
    assert (told["imported"], told["rejects"]) == (3, [])
    for topic in topics:
        message, was = result_of(stored.broker.store.get(topic)), before[topic]
        assert message.revision > was.revision
        assert (message.payload, message.qos, message.properties) == (was.payload, was.qos, was.properties)
        assert (message.client_id, message.username) == (was.client_id, was.username)
        assert (message.stored_at, message.expires_at) == (was.stored_at, was.expires_at)
    for merge in ("newer", "replace", "keep"):
        told = stored.ask("POST", "/import", exported, merge=merge)
        assert (told["imported"], told["unchanged"]) == (0, 3)


def test_rejected_lines_have_their_numbers(stored: Desk) -> None:
    """The other lines are imported. Empty lines have a number too, and are skipped."""
    body = "\n" + line("a") + "{\n" + line("b/#") + line("b", b"") + line("c", qos="1") + line("d") + line("e", x=1)
    told = stored.ask("POST", "/import", body.removesuffix("\n"))
    assert told["imported"] == 2
    assert [reject["line"] for reject in told["rejects"]] == [3, 4, 5, 6, 8]
    assert {reject["code"] for reject in told["rejects"]} == {"BAD_REQUEST"}
    assert stored.topics() == ["a", "d"]


@pytest.mark.parametrize(
    "fields",
    [
        {"revision": 1}, {"revision": "-1"}, {"revision": "1" * 20}, {"stored_at": -1}, {"stored_at": 2**60},
        {"expires_at": "1"}, {"client_id": "\0"}, {"username": 1}, {"stored_at": float("nan")},
        {"properties": {"correlation_data": 1}}, {"properties": {"message_expiry_interval": 1}},
    ],
)  # fmt: skip
def test_fields_of_a_line_are_checked(stored: Desk, fields: dict[str, Any]) -> None:
    told = stored.ask("POST", "/import", line("a", **fields))
    assert (told["imported"], len(told["rejects"])) == (0, 1)


def test_an_import_is_limited_in_lines(stored: Desk) -> None:
    status, code, message = stored.refused("POST", "/import", "\n" * 10_001)
    assert (status, code) == (400, "BAD_REQUEST")
    assert "10000 lines" in message


def test_an_import_pauses_between_its_parts(stored: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "LINES_IN_TURN", 10)
    assert stored.ask("POST", "/import", "".join(line(f"{n}") for n in range(95)))["imported"] == 95
    assert stored.pauses >= 9


def test_an_unknown_rule_is_refused(stored: Desk) -> None:
    assert stored.refused("POST", "/import", merge="both")[:2] == (400, "BAD_REQUEST")


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A desk for all examples of a test."""
    with stored_desk("sqlite", tmp_path_factory.mktemp("lasting")) as desk:
        yield desk


@given(body=st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_no_body_makes_an_import_fail(lasting: Desk, body: bytes) -> None:
    assert lasting.answer("POST", "/import", body).status == 200
    assert lasting.topics() == []


@pytest.mark.parametrize("make", MAKES)
def test_limits_hold_for_an_import_too(make: str, tmp_path: Path) -> None:
    """A refused line is named by its number; a line that replaces a message needs no room."""
    with stored_desk(make, tmp_path, retainer=RetainerLimits(max_retained_messages=1)) as desk:
        desk.ask("POST", "/messages", {"topic": "a", "payload": "1"})
        told = desk.ask("POST", "/import", line("b") + line("a", b"2"), merge="replace")
        assert told["imported"] == 1
        assert [(reject["line"], reject["code"]) for reject in told["rejects"]] == [(1, "EXCEED_LIMIT")]


@pytest.mark.parametrize("make", MAKES)
def test_control_characters_hold_for_operators_too(make: str, tmp_path: Path) -> None:
    """Set and import refuse a topic or Response Topic that no client could use; what is stored can be cleared."""
    limits, before = RetainerLimits(control_characters=False), Limits(control_characters=True)
    with stored_desk(make, tmp_path, retainer=limits, limits=before) as desk:
        for body in (
            {"topic": "a\x1b", "payload": "x"},
            {"topic": "a", "payload": "x", "properties": {"response_topic": "r\x07"}},
        ):
            status, code, message = desk.refused("POST", "/messages", body)
            assert (status, code) == (400, "BAD_REQUEST")
            assert "mqtt.control_characters" in message
        lines = line("a\x1b") + line("b", properties={"response_topic": "r\x07"}) + line("c", properties={})
        told = desk.ask("POST", "/import", lines, merge="replace")
        assert told["imported"] == 1
        assert [(reject["line"], "U+00" in reject["message"]) for reject in told["rejects"]] == [(1, True), (2, True)]
        desk.retain("a/\x1b")  # stored when it was accepted
        assert desk.topics() == ["a/\x1b", "c"]
        assert desk.ask("DELETE", "/messages", topic="a/#")["count"] == 1
        assert desk.topics() == ["c"]


@pytest.mark.parametrize("make", MAKES)
def test_nothing_is_imported_if_the_retainer_is_disabled(make: str, tmp_path: Path) -> None:
    with stored_desk(make, tmp_path, retainer=RetainerLimits(enable=False)) as desk:
        refused = desk.refused("POST", "/import", line("a"))
        assert refused == (400, "EXCEED_LIMIT", "retainer.enable is false")


@pytest.mark.parametrize("merge", ["newer", "replace", "keep"])
def test_of_a_topic_in_several_lines_the_newest_line_counts(stored: Desk, merge: str) -> None:
    """By ``stored_at``, for any order of the lines. A limit names the newest line."""
    body = line("t", b"1", stored_at=1) + line("t", b"3", stored_at=3) + line("t", b"2", stored_at=2)
    told = stored.ask("POST", "/import", body + line("#") + line("s" * 3000, stored_at=2), merge=merge)
    assert told["imported"] == 1
    assert [reject["line"] for reject in told["rejects"]] == [4, 5]
    assert result_of(stored.broker.store.get("t")).payload == b"3"


def test_every_imported_message_is_announced_and_counted(stored: Desk) -> None:
    heard: list[Change] = []
    stored.broker.retained.feed.listen(heard.append)
    stored.ask("POST", "/import", line("b") + line("a"))
    assert [(change.topic, change.kind, change.origin, change.live) for change in heard] == [
        ("a", ChangeKind.SET, ChangeOrigin.IMPORT, False),
        ("b", ChangeKind.SET, ChangeOrigin.IMPORT, False),
    ]
    assert stored.ask("GET", "/info")["api"]["imported"] == 2


def test_a_call_leaves_no_job_behind(stored: Desk) -> None:
    """Nobody could repeat the call under the job's name."""
    names: list[str] = []
    tell = MergedPart.settled

    def settled(self: MergedPart, outcome: Any) -> None:
        names.append(self.request.name)
        tell(self, outcome)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MergedPart, "settled", settled)
        stored.ask("POST", "/import", line("a"))
    readers = stored.broker.store._parts.readers
    assert result_of(readers.read(lambda connection: read_job(connection.cursor(), names[0]))) is None


def test_a_change_published_after_the_stamps_prevails(stored: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the import replaces: it was requested before. The row counts as kept."""
    store = stored.broker.store
    merge = store.merge

    def after_a_publish(part: MergedPart) -> None:
        if not stored.topics():
            stored.retain("t", b"published")
        merge(part)

    monkeypatch.setattr(store, "merge", after_a_publish)
    told = stored.ask("POST", "/import", line("t", b"imported"), merge="replace")
    assert (told["imported"], told["kept"]) == (0, 1)
    assert result_of(store.get("t")).payload == b"published"


def test_an_import_that_cannot_be_stored_fails_as_a_whole(stored: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Failure(StorageFailure(FailureKind.FULL, "no space left"))
    monkeypatch.setattr(stored.broker.store, "merge", lambda part: part.settled(failure))
    assert stored.refused("POST", "/import", line("a") + line("b")) == (503, "SERVICE_UNAVAILABLE", "no space left")
    assert stored.ask("GET", "/info")["api"]["imported"] == 0


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("make", MAKES)
def test_a_running_replay_sees_changes_by_the_api(make: str, quiet: bool, tmp_path: Path) -> None:
    """A batch that was read before the change is read again: never a value from before the change."""
    with stored_desk(make, tmp_path, flow=SMALL, limits=Limits(max_inflight=2)) as desk:
        for number in range(8):
            desk.retain(f"t/{number}", b"old", qos=1)
        client = desk.broker.client("c", 5)
        client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 1),)))
        desk.ask("POST", "/messages", {"topic": "t/3", "payload": "new", "quiet": quiet})
        desk.ask("POST", "/messages", {"topic": "t/33", "payload": "new", "quiet": quiet})
        desk.ask("DELETE", "/messages", topic="t/5", quiet="true" if quiet else "false")
        desk.ask("POST", "/import", line("t/7", b"new"), merge="replace")
        assert {topic: data for topic, data, _, _ in client.messages()} == {
            "t/0": b"old", "t/1": b"old", "t/2": b"old", "t/3": b"new", "t/33": b"new", "t/4": b"old", "t/6": b"old",
            "t/7": b"new", **({} if quiet else {"t/5": b""}),
        }  # fmt: skip
        assert len(desk.broker.retained.feed) == 0
