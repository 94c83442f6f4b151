"""Calls about the history and about replays."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.admin.callers import this_operator
from holdfast.admin.jobs import State
from holdfast.changes import history
from holdfast.changes.entries import NOT_RECORDED, Rule, Rules
from holdfast.changes.history import HistoryLimits
from holdfast.core.units import BadTime, Rate, moment_of
from holdfast.retained.limits import FlowSettings
from holdfast.wire.packets import Publish
from tests.admin.doubles import Desk
from tests.admin.test_long_work import begin, job_of
from tests.changes.history.recorded import RecordedBroker
from tests.doubles import START
from tests.postgres import synchronous
from tests.storage.doubles import fresh_file


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A broker that records."""
    url = f"sqlite:///{fresh_file(tmp_path)}"
    broker = RecordedBroker(lambda now: synchronous(url, now=now)[0])
    desk = Desk(broker, broker.history)
    yield desk
    broker.close()


def change(desk: Desk, topic: str, payload: bytes, **options: Any) -> int:
    """Publish, let a second pass, and return the moment before that."""
    desk.broker.client("c", 5, username="u").publish(topic, payload, 1, True, **options)
    at = desk.broker.now()
    desk.broker.advance(1)
    return at


def pages(desk: Desk, **arguments: str) -> list[dict[str, Any]]:
    """Return all events, page by page."""
    found: list[dict[str, Any]] = []
    for _ in range(100):
        page = desk.ask("GET", "/history", **arguments)
        found += page["data"]
        if not page["meta"]["hasnext"]:
            return found
        arguments["cursor"] = page["meta"]["cursor"]
    raise AssertionError("pages never end")


def test_an_event_names_the_publisher_and_the_change(desk: Desk) -> None:
    change(desk, "a/b", b"\0\xff")
    (event,) = desk.ask("GET", "/history", topic="a/+")["data"]
    assert int(event.pop("revision")) > 0
    assert int(event.pop("seq")) > 0
    assert event == {
        "changed_at": "2027-01-15T08:00:00.000Z", "op": "set", "origin": "publish", "topic": "a/b", "qos": 1, "size": 2,
        "from_clientid": "c", "from_username": "u", "operator": None, "expiry_at": None, "properties": {},
        "payload": "AP8=",
    }  # fmt: skip


def test_the_history_names_the_operator_of_a_clear(desk: Desk) -> None:
    """Of clears by filter and by topic, in one part or in several, and of clears by a restore."""
    operator, before = str(this_operator()), desk.broker.now()
    desk.broker.advance(1)
    for topic, method, path, arguments in (
        ("a", "DELETE", "/messages", {"topic": "a/#"}),
        ("b", "DELETE", "/message/b", {}),
        ("c", "POST", "/restore", {"topic": "c", "at": str(before), "clear": "true"}),
        ("d", "DELETE", "/messages", {"topic": "d", "limit": "5"}),
    ):
        change(desk, topic, b"1")
        desk.ask(method, path, **arguments)
        (event,) = desk.ask("GET", "/history", topic=topic, first="newest", limit="1")["data"]
        assert (event["op"], event["from_clientid"], event["from_username"]) == ("clear", None, operator)
        assert event["operator"] == operator


def test_the_history_names_the_operator_of_a_set_beside_the_publisher(desk: Desk) -> None:
    """Of a set and of a restore. The retained message keeps its publisher, or has none."""
    operator = str(this_operator())
    change(desk, "lamp", b"1")
    before = desk.broker.now()
    desk.broker.advance(1)
    desk.ask("DELETE", "/message/lamp")
    desk.ask("POST", "/restore", topic="lamp", at=str(before))
    desk.ask("POST", "/messages", {"topic": "door", "payload": "open"})
    for topic, publisher in (("lamp", "u"), ("door", None)):
        (event,) = desk.ask("GET", "/history", topic=topic, first="newest", limit="1")["data"]
        assert (event["op"], event["from_username"], event["operator"]) == ("set", publisher, operator)
        (message,) = desk.ask("GET", "/messages", topic=topic)["data"]
        assert message["from_username"] == publisher


@pytest.mark.parametrize("limit", ["1", "2", "1000"])
def test_events_come_in_pages_from_either_end(desk: Desk, limit: str) -> None:
    """Between two times, for matching topics. New changes do not shift the pages."""
    moments = [change(desk, f"t/{number % 3}", b"%d" % number) for number in range(9)]
    change(desk, "$x", b"x")

    def payloads(**arguments: str) -> list[str]:
        return [b64decode(event["payload"]).decode() for event in pages(desk, limit=limit, **arguments)]

    assert payloads() == [*"012345678", "x"]
    assert payloads(topic="#") == [*"012345678"]
    assert payloads(topic="#", first="newest") == [*"876543210"]
    assert payloads(topic="t/1") == ["1", "4", "7"]
    assert payloads(topic="t/1", first="newest") == ["7", "4", "1"]
    between = {"since": str(moments[2]), "until": str(moments[6])}
    assert payloads(**between) == [*"23456"]
    assert payloads(first="newest", **between) == [*"65432"]
    assert payloads(topic="t/2", first="newest", **between) == ["5", "2"]
    assert payloads(topic="nothing/#") == []
    assert payloads(until="2027-01-15T08:00:01Z", topic="#") == ["0", "1"]
    first = desk.ask("GET", "/history", topic="#", first="newest", limit="1")
    change(desk, "t/new", b"new")
    assert payloads(topic="#", first="newest", cursor=first["meta"]["cursor"]) == [*"76543210"]


def test_the_messages_of_a_moment_are_listed_like_those_of_now(desk: Desk) -> None:
    for topic in ("a/1", "a/2", "b", "$x"):
        at = change(desk, topic, b"then")
    change(desk, "a/1", b"now")
    change(desk, "a/2", b"")
    then = {"at": str(at)}
    assert desk.topics(**then) == ["$x", "a/1", "a/2", "b"]
    assert desk.topics(topic="a/#", **then) == ["a/1", "a/2"]
    page = desk.ask("GET", "/messages", topic="#", limit="2", **then)
    assert [row["topic"] for row in page["data"]] == ["a/1", "a/2"]
    assert desk.topics(topic="#", limit="2", cursor=page["meta"]["cursor"], **then) == ["b"]
    assert b64decode(desk.ask("GET", "/message/a%2F1", **then)["payload"]) == b"then"
    assert desk.refused("GET", "/message/b", at=str(START * 1000))[0] == 404
    lines = [json.loads(line) for line in desk.export(**then).splitlines()]
    assert [(one["topic"], b64decode(one["payload"]), one["client_id"]) for one in lines] == [
        (topic, b"then", "c") for topic in ("$x", "a/1", "a/2", "b")
    ]
    assert desk.topics(topic="a/#") == ["a/1"]


def test_a_restore_works_in_parts(desk: Desk) -> None:
    """A dry run counts first. Subscribers get the restored messages."""
    at = [change(desk, f"t/{number:03}", b"then") for number in range(250)][-1]
    desk.ask("DELETE", "/messages", topic="t/#", limit="240")
    change(desk, "t/new", b"new")
    watcher = desk.broker.client("w", 5)
    watcher.subscribe("t/000")
    arguments = {"topic": "t/#", "at": str(at), "limit": "100"}
    counted = desk.ask("POST", "/restore", **arguments, dry_run="true")
    assert (counted["restored"], counted["at"], counted["dry_run"]) == (100, "2027-01-15T08:04:09.000Z", True)
    assert desk.ask("GET", "/info")["count"] == 11
    told = {"restored": 0, "unchanged": 0, "kept": 0, "refused": 0}
    rounds = 0
    while True:
        rounds += 1
        answer = desk.ask("POST", "/restore", **arguments)
        told = {name: count + answer[name] for name, count in told.items()}
        if not answer["meta"]["hasnext"]:
            break
        arguments["cursor"] = answer["meta"]["cursor"]
    assert (told, rounds) == ({"restored": 240, "unchanged": 10, "kept": 1, "refused": 0}, 3)
    assert [message[:2] for message in watcher.messages()] == [("t/000", b"then")]
    assert len(desk.topics(topic="t/#", limit="1000")) == 251


def test_a_job_restores_all_topics(desk: Desk) -> None:
    """It works past the default size of a part of the call; its result has the numbers of all parts."""
    for number in range(1100):
        desk.broker.client("c", 5).publish(f"t/{number}", b"old", 1, True)
    at = desk.broker.now()
    desk.broker.advance(1)
    desk.ask("DELETE", "/messages", topic="t/#")
    job = job_of(desk, begin(desk, "POST", "/restore", topic="t/#", at=str(at)))
    desk.broker.settle()
    assert (job.kind, job.state, job.done, job.result["restored"]) == ("restore", State.DONE, 1100, 1100)
    assert job.result["meta"] == {"hasnext": False, "cursor": None}
    assert desk.ask("GET", "/info")["count"] == 1100


def test_a_restore_that_cannot_be_done_is_refused(desk: Desk) -> None:
    """The refusal names the earliest possible time."""
    at = change(desk, "t", b"x")
    assert desk.refused("POST", "/restore", at=str(at))[2] == "the argument topic is missing: the Topic Filter"
    assert desk.refused("POST", "/restore", topic="t")[2] == "the argument at is missing: the time as of which"
    status, code, message = desk.refused("POST", "/restore", topic="t", at="1d")
    assert (status, code) == (400, "HISTORY_UNAVAILABLE")
    assert "the earliest possible time is 2027-01-15T08:00:00.000Z" in message
    assert "is still to come" in desk.refused("GET", "/messages", at="2040-01-01")[2]
    assert "allowed: a time such as" in desk.refused("GET", "/history", since="soon")[2]
    assert desk.refused("GET", "/history", first="last")[2] == "first is oldest or newest"
    assert desk.refused("GET", "/history", cursor="x")[1] == "BAD_REQUEST"
    assert "set retainer.history.enable = true" in Desk().refused("GET", "/history")[2]


def test_times_are_read_in_several_forms() -> None:
    now = 1_800_000_000_000
    assert moment_of("2027-01-15T08:00:00Z", 0) == now
    assert moment_of(" 2027-01-15T09:00:00.5+01:00", 0) == now + 500
    assert moment_of("2027-01-15 08:00", 0) == now
    assert moment_of("2027-01-15", 0) == now - 8 * 3_600_000
    assert moment_of("1h30m", now) == moment_of("-1h30m", now) == now - 5_400_000
    assert moment_of("1800000000000", 0) == now
    assert moment_of("9999w", 1000) == 0
    assert moment_of("0001-01-01", 0) == 0
    for wrong in (
        "",
        "yesterday",
        "12",
        "2027-13-01",
        "--5m",
        "1e3s",
        "5",
        "\0",
        "9" * 5000,
        "T",
        "2027-01-15T25:00:00Z",
    ):
        with pytest.raises(BadTime, match="allowed: a time such as"):
            moment_of(wrong, now)


def test_replays_are_listed_and_cancelled() -> None:
    """A listed replay has the numbers of sent and waiting messages. A cancelled replay ends its connection."""
    desk = Desk(flow=FlowSettings(batch_read_number=10, batch_deliver_number=5, delivery_rate=Rate(3, 1.0)))
    for number in range(30):
        desk.retain(f"t/{number:02}")
    slow = desk.broker.client("slow", 5)
    assert len([one for one in slow.subscribe("t/#") if isinstance(one, Publish)]) == 3
    desk.broker.advance(0.5)
    (told,) = desk.ask("GET", "/replays")["data"]
    assert told == {
        "id": told["id"], "clientid": "slow", "topic": "t/#", "sent": told["sent"], "pending": 10 - told["sent"],
        "cursor": f"t/{told['sent'] - 1:02}", "state": "throttled", "throttled": True, "age": 0.5,
        "rate": 2.0 * told["sent"], "total": None,
    }  # fmt: skip
    assert desk.refused("DELETE", f"/replay/{told['id'] + 1}")[:2] == (404, "NOT_FOUND")
    assert desk.refused("DELETE", "/replay/x")[:2] == (400, "BAD_REQUEST")
    assert desk.answer("DELETE", f"/replay/{told['id']}").status == 204
    assert desk.ask("GET", "/replays")["data"] == []
    assert slow.network.closed


def test_an_archive_confirms_its_last_change(desk: Desk) -> None:
    """The number never decreases, and is never after the end of the history. Other bodies are refused."""
    for number in range(3):
        change(desk, "t", b"%d" % number)
    last = int(pages(desk)[-1]["seq"])

    def told(seq: str) -> Any:
        return desk.ask("POST", "/history/archived", body=b'{"seq": "%s"}' % seq.encode())["seq"]

    assert told("0") == "0"
    assert told(str(last - 1)) == str(last - 1)
    assert told("1") == str(last - 1)
    refused = desk.refused("POST", "/history/archived", body=b'{"seq": "%d"}' % (last + 1))
    assert refused[:2] == (400, "HISTORY_UNAVAILABLE")
    assert refused[2].startswith(f"the history ends at event {last}:")
    assert told(str(last)) == str(last)
    for wrong in (b"7", b'{"seq": 7}', b'{"seq": "-1"}', b'{"seq": "' + b"9" * 19 + b'"}', b"{}"):
        assert desk.refused("POST", "/history/archived", body=wrong)[2].startswith(
            ('the body is {"seq": "123"}', "the body is a JSON object")
        )
    for wrong in (b"", b'{"seq": "7", "x": 1}', b'{"seq": "7", "seq": "8"}'):
        assert desk.refused("POST", "/history/archived", body=wrong)[:2] == (400, "BAD_REQUEST")


def test_the_difference_of_two_revisions_is_told(desk: Desk) -> None:
    """By default, of the latest one and the one before; a revision is named as the history shows it."""
    for payload in (b'{"t": 1}', b'{"t": 2}', b"", b"text"):
        change(desk, "a", payload)
    events = desk.ask("GET", "/history", topic="a")["data"]
    first, second, cleared, last = (event["revision"] for event in events)
    found = desk.ask("GET", "/diff", topic="a", **{"from": first, "to": second})
    assert (found["content"], found["equal"], found["truncated"]) == ("json", False, False)
    assert found["changes"] == [{"kind": "changed", "path": "/t", "before": 1, "after": 2}]
    assert (found["from"]["revision"], found["to"]["revision"]) == (first, second)
    latest = desk.ask("GET", "/diff", topic="a")
    assert (latest["from"]["revision"], latest["to"]["revision"]) == (cleared, last)
    assert latest["changes"] == [{"kind": "added", "line": 1, "after": "text"}]
    assert desk.ask("GET", "/diff", topic="a", to=first)["from"] is None


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ({"topic": "a/#"}, 400, "topic: name one topic"),
        ({"topic": "a", "from": "x"}, 400, "from is a revision of the topic"),
        ({"topic": "a", "to": "9" * 19}, 400, "to is a revision of the topic"),
        ({"topic": "a", "to": "5"}, 404, "the history has no revision 5 of a"),
        ({"topic": "b"}, 404, "the history has no change of b"),
    ],
)
def test_a_difference_of_unknown_revisions_is_refused(
    desk: Desk, arguments: dict[str, str], status: int, says: str
) -> None:
    change(desk, "a", b"1")
    refused = desk.refused("GET", "/diff", **arguments)
    assert refused[0] == status
    assert refused[2].startswith(says)


def test_the_topics_of_the_history_have_their_latest_change(desk: Desk) -> None:
    """Also topics without a message now, page by page."""
    for topic, payload in (("a/1", b"1"), ("a/2", b"22"), ("a/1", b""), ("b", b"1")):
        change(desk, topic, payload)
    page = desk.ask("GET", "/history/topics", topic="a/#", limit="1")
    rest = desk.ask("GET", "/history/topics", topic="a/#", limit="1", cursor=page["meta"]["cursor"])
    found = [(one["topic"], one["op"], one["size"]) for one in (*page["data"], *rest["data"])]
    assert found == [("a/1", "clear", 0), ("a/2", "set", 2)]
    assert rest["meta"]["hasnext"] is False


def test_messages_of_a_time_are_listed(desk: Desk) -> None:
    """With their payloads, where the caller asks for them."""
    at = change(desk, "a", b"1")
    change(desk, "a", b"2")
    (row,) = desk.ask("GET", "/messages", at=str(at), payload="true")["data"]
    assert (row["topic"], row["payload"]) == ("a", "MQ==")


def test_a_history_whose_baseline_is_not_complete_answers_409(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before its first transaction. A time of the period before is still answered."""
    assert isinstance(desk.broker, RecordedBroker)
    at = str(change(desk, "t", b"then"))
    desk.broker.advance(1)
    desk.broker.history.change_limits(HistoryLimits(enable=False))
    desk.broker.advance(1)
    assert desk.refused("GET", "/messages", at=at)[0] == 400
    with monkeypatch.context() as patched:
        patched.setattr(history, "write_part", lambda *_: True)
        desk.broker.history.change_limits(HistoryLimits(enable=True))
        assert desk.refused("GET", "/messages", at=at)[:2] == (409, "HISTORY_UNAVAILABLE")
        desk.broker.advance(1)
        assert [row["topic"] for row in desk.ask("GET", "/messages", at=at)["data"]] == ["t"]
        for call in (("GET", "/messages"), ("GET", "/export"), ("POST", "/restore")):
            status, code, message = desk.refused(*call, topic="#", at="0s")
            assert (status, code) == (409, "HISTORY_UNAVAILABLE")
            assert "still being written" in message
    desk.broker.advance(60)
    assert [row["topic"] for row in desk.ask("GET", "/messages", at="0s")["data"]] == ["t"]


def test_topics_that_the_history_does_not_know_are_named(desk: Desk) -> None:
    """In lists of a time and by a restore, which does not touch them. Alone they are refused with the reason."""
    assert isinstance(desk.broker, RecordedBroker)
    desk.broker.history.change_rules(Rules([Rule("noise/#", NOT_RECORDED)]))
    desk.broker.advance(1)
    change(desk, "noise/a", b"then")
    at = str(change(desk, "t", b"then"))
    change(desk, "noise/a", b"now")
    change(desk, "t", b"now")
    listed = desk.ask("GET", "/messages", at=at)
    assert ([row["topic"] for row in listed["data"]], listed["meta"]["left_out"]) == (["t"], ["noise/#"])
    assert desk.ask("GET", "/messages", at=at, topic="t")["meta"]["left_out"] == []
    for call in (("GET", "/messages"), ("GET", "/export"), ("POST", "/restore")):
        status, code, message = desk.refused(*call, topic="noise/+", at=at)
        assert (status, code) == (400, "HISTORY_UNAVAILABLE")
        assert "a policy with history = false excludes these topics" in message
    told = desk.ask("POST", "/restore", topic="#", at=at, clear="true")
    assert (told["restored"], told["cleared"], told["left_out"]) == (1, 0, ["noise/#"])
    assert desk.topics(topic="#") == ["noise/a", "t"]
