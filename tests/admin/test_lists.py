"""Calls about many retained messages: searches, sorted pages, counts, the tree, exports, and clears by conditions."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64decode

import pytest
from twisted.internet.defer import CancelledError, Deferred

from holdfast.admin.address import API_PREFIX
from holdfast.admin.call import Call
from holdfast.admin.callers import this_operator
from holdfast.retained import searches
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.searches import WAITING_OF_ONE
from holdfast.wire import Properties
from holdfast.wire.packets import SubscriptionRequest
from tests.admin.doubles import Desk
from tests.storage.doubles import result_of


@pytest.fixture
def desk() -> Desk:
    """Four messages by two clients, one minute apart, of growing size; the third one has expired since."""
    desk = Desk(retainer=RetainerLimits(msg_clear_interval=0))  # no sweep
    for number, (client, topic) in enumerate((("a", "s/1/t"), ("b", "s/2/t"), ("a", "s/2/u"), ("b", "x"))):
        expiry = Properties(message_expiry_interval=60) if topic == "s/2/u" else Properties()
        user = desk.broker.client(client, 5, username=f"user-{client}")
        user.publish(topic, b"x" * (4 - number), retain=True, properties=expiry)
        desk.broker.advance(60)
    return desk


@pytest.mark.parametrize(
    ("arguments", "topics"),
    [
        ({"publisher": "b"}, ["s/2/t", "x"]),
        ({"username": "user-a"}, ["s/1/t"]),
        ({"older_than": "3m"}, ["s/1/t"]),
        ({"newer_than": "-3m"}, ["s/2/t", "x"]),
        ({"min_size": "3"}, ["s/1/t", "s/2/t"]),
        ({"max_size": "1"}, ["x"]),
        ({"search": "/t"}, ["s/1/t", "s/2/t"]),
        ({"search": "T"}, []),
        ({"expired": "true"}, ["s/2/u"]),
        ({"topic": "s/+/t", "publisher": "b", "min_size": "1"}, ["s/2/t"]),
        ({"sort": "size"}, ["s/1/t", "s/2/t", "x"]),
        ({"sort": "time"}, ["x", "s/2/t", "s/1/t"]),
        ({"sort": "time", "order": "asc", "topic": "s/#"}, ["s/1/t", "s/2/t"]),
        ({"sort": "size", "publisher": "b"}, ["s/2/t", "x"]),
    ],
)
def test_messages_are_selected_and_sorted(desk: Desk, arguments: dict[str, str], topics: list[str]) -> None:
    """On one page and on pages of one message. Every answer says how many rows it has looked at."""
    whole = desk.ask("GET", "/messages", **arguments)
    assert [row["topic"] for row in whole["data"]] == topics
    assert whole["meta"] == {"limit": 100, "hasnext": False, "cursor": None, "scanned": whole["meta"]["scanned"]}
    found: list[str] = []
    page = desk.ask("GET", "/messages", limit="1", **arguments)
    for _ in range(10):
        found += [row["topic"] for row in page["data"]]
        if not page["meta"]["hasnext"]:
            break
        page = desk.ask("GET", "/messages", limit="1", cursor=page["meta"]["cursor"], **arguments)
    assert found == topics


def test_a_list_shows_payloads_if_asked(desk: Desk) -> None:
    """In base64, with and without conditions."""
    for conditions in ({}, {"publisher": "b"}):
        rows = desk.ask("GET", "/messages", topic="x", payload="true", **conditions)["data"]
        assert [row["payload"] for row in rows] == ["eA=="]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"sort": "qos"}, "sort is topic, time or size"),
        ({"order": "desc"}, "topics are listed in ascending order"),
        ({"sort": "time", "order": "up"}, "order is asc or desc"),
        ({"sort": "time", "cursor": "x"}, "cursor: copy it unchanged"),
        ({"sort": "time", "limit": "1001"}, "limit is a whole number from 1 to 1000"),
        ({"sort": "time", "payload": "true"}, "payload is not allowed together with sort"),
        ({"publisher": ""}, "publisher is a text of 1 to 65535 characters"),
        ({"search": "\0"}, "search is a text of 1 to 65535 characters"),
        ({"min_size": "-1"}, "min_size is a number of bytes from 0 to"),
        ({"older_than": "soon"}, "older_than: found 'soon'; allowed: a time such as"),
        ({"publisher": "a", "page": "2"}, "page is not allowed together with conditions"),
        ({"publisher": "a", "at": "1h"}, "at is not allowed together with conditions"),
        ({"expired": "1"}, "expired is true or false"),
    ],
)
def test_wrong_conditions_are_refused(desk: Desk, arguments: dict[str, str], says: str) -> None:
    status, code, message = desk.refused("GET", "/messages", **arguments)
    assert (status, code) == (400, "BAD_REQUEST")
    assert message.startswith(says)


@pytest.mark.parametrize(
    ("method", "path", "body", "argument"),
    [("GET", "/count", b"", "exact"), ("POST", "/messages", {"topic": "t", "payload": "", "quiet": True}, "quiet")],
)
def test_a_wrong_flag_is_refused_where_it_decides_nothing(
    desk: Desk, method: str, path: str, body: dict[str, object] | bytes, argument: str
) -> None:
    status, code, message = desk.refused(method, path, body, **{argument: "AAA"})
    assert (status, code, message) == (400, "BAD_REQUEST", f"{argument} is true or false")


def test_messages_of_a_time_need_the_history(desk: Desk) -> None:
    assert desk.refused("GET", "/messages", at="1h")[1] == "HISTORY_UNAVAILABLE"


def test_counts_say_whether_they_are_exact(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a filter and conditions, the totals answer, and no row is read."""
    everything = desk.ask("GET", "/count")
    assert (everything["count"], everything["exact"], everything["scanned"]) == (3, True, 0)
    some = desk.ask("GET", "/count", topic="s/#")
    assert (some["count"], some["bytes"], some["exact"]) == (2, 2 * 206 + 7, True)
    assert desk.ask("GET", "/count", topic="s/#", expired="true")["count"] == 1
    monkeypatch.setattr(searches, "MOST_SCANNED", 1)
    monkeypatch.setattr(searches, "ROWS_OF_COUNT", 1)
    bounded = desk.ask("GET", "/count", topic="s/#")
    assert (bounded["count"], bounded["exact"]) == (1, False)
    assert desk.ask("GET", "/count", topic="s/#", exact="true")["count"] == 2


def test_whole_scans_of_a_caller_wait_for_one_another(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a few are refused."""
    waiting: Deferred[None] = Deferred()
    monkeypatch.setattr(desk.administration.searches, "_pause", lambda: waiting)
    asked = [desk.table.answer(call_of("/messages", sort="time")) for _ in range(WAITING_OF_ONE + 1)]
    status, code, _ = desk.refused("GET", "/count", topic="#", exact="true")
    assert (status, code) == (429, "TOO_MANY_SCANS")
    asked[1].addErrback(lambda failure: failure.trap(CancelledError))
    asked[1].cancel()
    waiting.callback(None)
    assert [result_of(one).status for number, one in enumerate(asked) if number != 1] == [200] * WAITING_OF_ONE


def call_of(path: str, **arguments: str) -> Call:
    """Return a call of this process's user."""
    return Call("GET", API_PREFIX + path, arguments, b"", this_operator())


def test_the_tree_opens_level_by_level(desk: Desk) -> None:
    """A node has the figures of all messages at and below it."""
    first = desk.ask("GET", "/tree")
    assert first["meta"] == {"limit": 100, "hasnext": False, "cursor": None, "scanned": first["meta"]["scanned"]}
    sensors, single = first["data"]
    assert sensors == {
        "name": "s", "topic": "s", "count": 2, "bytes": 2 * 206 + 7, "newest": "2027-01-15T08:01:00.000Z",
        "exact": True, "has_message": False, "children": True,
    }  # fmt: skip
    assert (single["topic"], single["has_message"], single["children"]) == ("x", True, False)
    below = desk.ask("GET", "/tree", topic="s", limit="1")
    assert [node["name"] for node in below["data"]] == ["1"]
    rest = desk.ask("GET", "/tree", topic="s", limit="1", cursor=below["meta"]["cursor"])
    assert [(node["name"], node["topic"], node["count"]) for node in rest["data"]] == [("2", "s/2", 1)]
    assert rest["meta"]["hasnext"] is False


def test_empty_levels_and_hostile_names_are_nodes() -> None:
    """The level below an empty first level is asked for with an empty topic."""
    desk = Desk()
    names = ["", "a", "a!", "$x", "<script>", "'", "%", "\U0001f600"]
    for name in names:
        desk.retain(f"{name}/1")
    nodes = desk.ask("GET", "/tree")["data"]
    assert sorted(node["name"] for node in nodes) == sorted(names)
    assert [node["topic"] for node in desk.ask("GET", "/tree", topic="")["data"]] == ["/1"]
    for name in names:
        assert [node["name"] for node in desk.ask("GET", "/tree", topic=name)["data"]] == ["1"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"topic": "a/#"}, "topic"), ({"topic": "a", "cursor": "b/1"}, "cursor"), ({"cursor": "\0"}, "cursor")],
)
def test_wrong_arguments_of_the_tree_are_refused(arguments: dict[str, str], field: str) -> None:
    answer = Desk().answer("GET", "/tree", **arguments)
    assert (answer.status, json.loads(answer.body)["field"]) == (400, field)


def test_an_export_has_the_messages_that_conditions_select(desk: Desk) -> None:
    lines = desk.export(publisher="b").splitlines()
    assert [json.loads(line)["topic"] for line in lines] == ["s/2/t", "x"]
    assert desk.refused("GET", "/export", format="xml")[2] == "format is ndjson or csv"
    assert desk.refused("GET", "/export", publisher="b", at="1h")[0] == 400


@pytest.mark.parametrize(("form", "most"), [("ndjson", 100), ("csv", 50)])
def test_an_export_is_written_in_pieces_of_few_lines(form: str, most: int) -> None:
    """So that each piece takes the reactor about 2 ms; large payloads make pieces smaller."""
    desk = Desk()
    for number in range(130):
        desk.retain(f"s/{number:03}")
    for number in range(4):
        desk.retain(f"t/{number}", b"x" * 150_000)
    more = desk.answer("GET", "/export", format=form).more
    assert more is not None
    pieces = []
    while piece := result_of(more()):
        pieces.append(piece)
    whole = desk.export(format=form)
    assert b"".join(pieces) == whole
    assert max(piece.count(b"\n") for piece in pieces) == most
    assert max(map(len, pieces)) < 250_000


def test_an_export_as_csv_has_a_line_of_names_and_inert_cells(desk: Desk) -> None:
    """It is saved as a file, not shown."""
    desk.retain("=cmd", b"-1.5")
    answer = desk.answer("GET", "/export", format="csv")
    assert answer.content_type == "text/csv; charset=utf-8"
    assert dict(answer.headers)["Content-Disposition"] == 'attachment; filename="retained.csv"'
    rows = list(csv.DictReader(io.StringIO(desk.export(format="csv").decode())))
    assert [row["topic"] for row in rows] == ["'=cmd", "s/1/t", "s/2/t", "x"]
    assert (rows[0]["payload"], rows[1]["client_id"], rows[1]["username"]) == ("-1.5", "a", "user-a")


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({"publisher": "b"}, ["s/1/t"]),
        ({"older_than": "90s"}, ["x"]),
        ({"newer_than": "90s"}, ["s/1/t", "s/2/t"]),
        ({"max_size": "1", "topic": "s/#"}, ["s/1/t", "s/2/t", "x"]),
    ],
)
def test_messages_are_cleared_by_conditions(desk: Desk, arguments: dict[str, str], left: list[str]) -> None:
    """A dry run counts them. Only a filter makes a clear of all topics possible."""
    wanted = {"topic": "#", **arguments}
    counted = desk.ask("DELETE", "/messages", dry_run="true", **wanted)
    assert counted["count"] == 3 - len(left)
    assert len(desk.topics()) == 3
    assert desk.ask("DELETE", "/messages", **wanted)["count"] == counted["count"]
    assert desk.topics() == left
    assert desk.refused("DELETE", "/messages", publisher="b")[2].startswith("name a topic or a filter")


def test_expired_messages_are_cleared_quietly(desk: Desk) -> None:
    """For subscribers they are gone already. Other clears reach them."""
    present = desk.broker.client("present", 5)
    present.subscribe(SubscriptionRequest("#", 0, retain_handling=2))
    assert desk.ask("DELETE", "/messages", topic="#", expired="true")["count"] == 1
    assert desk.ask("GET", "/messages", expired="true")["data"] == []
    assert present.messages() == []
    assert desk.ask("DELETE", "/messages", topic="#", publisher="a")["count"] == 1
    assert [one[:2] for one in present.messages()] == [("s/1/t", b"")]


@pytest.mark.parametrize("arguments", [{}, {"topic": "s/#"}, {"sort": "size"}, {"min_size": "1"}, {"expired": "true"}])
def test_messages_are_listed_with_the_beginnings_of_their_payloads(desk: Desk, arguments: dict[str, str]) -> None:
    """In every kind of list, so that a table of many messages shows what they say without reading all of it."""
    rows = desk.ask("GET", "/messages", beginning="2", **arguments)["data"]
    assert rows
    assert {b64decode(row["beginning"]) for row in rows} <= {b"xx", b"x"}
    assert all(len(b64decode(row["beginning"])) == min(2, row["size"]) for row in rows)


@pytest.mark.parametrize("given", ["0", "257", "x"])
def test_beginnings_are_bounded(desk: Desk, given: str) -> None:
    assert desk.refused("GET", "/messages", beginning=given)[2] == "beginning is a whole number from 1 to 256"
