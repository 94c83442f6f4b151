"""Calls about clients of several members: lists are merged, others go to the member that has the client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, gatherResults

from holdfast.admin.api.clients import CLIENTS_PREFIX, SUBSCRIPTIONS_PREFIX, ClientCalls, cursor_for, parts_of
from holdfast.admin.api.members import MOST_READS, CallsOfMembers, merged
from holdfast.admin.call import Answer, Call, Caller, Scope
from holdfast.admin.routing import RoutingTable
from holdfast.sessions.directory import Directory
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker

ALICE = Caller("alice", 1000, frozenset({Scope.ADMIN}))


class Desk:
    """Members 1, 2 and 3 in memory; calls come to member 1. ``silent`` members do not answer."""

    def __init__(self) -> None:
        self.brokers = {node: MemoryBroker() for node in (1, 2, 3)}
        self.silent: set[int] = set()
        self.calls = {node: self._calls(node) for node in self.brokers}
        self.table = RoutingTable(self.calls[1].routes)

    def _calls(self, node: int) -> CallsOfMembers:
        broker = self.brokers[node]
        directory = Directory(broker.registry, broker.session_parts.broker_parts.long_work)
        return CallsOfMembers(ClientCalls(directory, str(node), lambda _: "default").routes, str(node), self._ask)

    def _ask(self, body: bytes) -> Deferred[tuple[Mapping[int, bytes], Sequence[int]]]:
        awake = [node for node in (2, 3) if node not in self.silent]
        answers = gatherResults([self.calls[node].answer(body) for node in awake])
        return answers.addCallback(lambda found: (dict(zip(awake, found, strict=True)), sorted(self.silent)))

    def call(self, method: str, path: str, **arguments: str) -> tuple[int, Any]:
        """Make a call, and let all members do their work; return status and content."""
        return self.made(Call(method, path, arguments, b"", ALICE))

    def unsubscribe(self, name: str, body: bytes) -> tuple[int, Any]:
        """End a subscription of a client."""
        return self.made(Call("POST", f"{CLIENTS_PREFIX}/{name}/unsubscribe", {}, body, ALICE))

    def made(self, call: Call) -> tuple[int, Any]:
        """Make a call."""
        answers: list[Answer] = []
        self.table.answer(call).addCallback(answers.append)
        while not answers:
            for broker in self.brokers.values():
                broker.settle()
        return answers[0].status, json.loads(answers[0].body) if answers[0].body else None

    def pages(self, path: str, **arguments: str) -> Iterator[list[Any]]:
        """Yield the entries of all pages."""
        cursor: dict[str, str] = {}
        while True:
            status, content = self.call("GET", path, **arguments, **cursor)
            assert status == 200
            yield content["data"]
            if not content["meta"]["hasnext"]:
                return
            cursor = {"cursor": content["meta"]["cursor"]}


@pytest.fixture
def desk() -> Desk:
    """Three members with some clients: "b" has two Sessions."""
    made = Desk()
    for node, names in {1: "ab", 2: "bd", 3: "c"}.items():
        for name in names:
            client = made.brokers[node].client(name)
            client.send(p.Subscribe(1, (p.SubscriptionRequest(f"{name}/1"), p.SubscriptionRequest(f"{name}/2"))))
    return made


@pytest.mark.parametrize("limit", range(1, 7))
def test_lists_have_the_clients_of_all_members(desk: Desk, limit: int) -> None:
    """In order, each once, whatever the size of the pages; a client with two Sessions is in one page."""
    numbers = range(1, 8)
    numbered = [desk.call("GET", CLIENTS_PREFIX, limit=str(limit), page=str(number)) for number in numbers]
    for pages in (list(desk.pages(CLIENTS_PREFIX, limit=str(limit))), [content["data"] for _, content in numbered]):
        shown = [(row["clientid"], row["node"]) for page in pages for row in page]
        assert shown == [("a", "1"), ("b", "1"), ("b", "2"), ("c", "3"), ("d", "2")]
    rows = [row for page in desk.pages(SUBSCRIPTIONS_PREFIX, limit=str(limit)) for row in page]
    assert [row["topic"] for row in rows] == ["a/1", "a/2", "b/1", "b/1", "b/2", "b/2", "c/1", "c/2", "d/1", "d/2"]


def test_a_list_tells_the_total_and_the_number_of_each_member(desk: Desk) -> None:
    """A silent member is named: its clients are missing. A condition leaves no numbers, as for one broker."""
    meta = desk.call("GET", CLIENTS_PREFIX)[1]["meta"]
    assert (meta["count"], meta["nodes"], meta["silent"]) == (5, {"1": 2, "2": 2, "3": 1}, [])
    desk.silent = {2}
    meta = desk.call("GET", CLIENTS_PREFIX)[1]["meta"]
    assert (meta["count"], meta["nodes"], meta["silent"]) == (3, {"1": 2, "3": 1}, ["2"])
    content = desk.call("GET", CLIENTS_PREFIX, like_clientid="c")[1]
    assert [row["clientid"] for row in content["data"]] == ["c"]
    assert "count" not in content["meta"]


def test_bad_arguments_are_refused_as_by_one_broker(desk: Desk) -> None:
    """With the field, and the allowed values."""
    for arguments, field in (
        ({"limit": "0"}, "limit"), ({"page": "1", "cursor": "x"}, "page"), ({"cursor": "x"}, "cursor"),
        ({"conn_state": "x"}, "conn_state"),
    ):  # fmt: skip
        status, content = desk.call("GET", CLIENTS_PREFIX, **arguments)
        assert (status, content["field"]) == (400, field)


def test_a_page_is_reached_by_a_bounded_number_of_reads(desk: Desk) -> None:
    """One behind the last client is empty; one that takes too many reads is refused."""
    for number in range(MOST_READS):
        desk.brokers[1].client(f"x{number}")
    assert desk.call("GET", CLIENTS_PREFIX, limit="10", page="1000000")[1]["data"] == []
    status, content = desk.call("GET", CLIENTS_PREFIX, limit="1", page=str(MOST_READS + 1))
    assert (status, content["field"]) == (400, "page")


def test_a_client_is_shown_by_the_member_that_has_it(desk: Desk) -> None:
    """One with two Sessions by the member where it is connected."""
    assert desk.call("GET", f"{CLIENTS_PREFIX}/c")[1]["node"] == "3"
    rows = desk.call("GET", f"{CLIENTS_PREFIX}/d/subscriptions")[1]
    assert [(row["node"], row["topic"]) for row in rows] == [("2", "d/1"), ("2", "d/2")]
    assert desk.call("GET", f"{CLIENTS_PREFIX}/b")[1]["node"] == "1"
    assert desk.call("GET", f"{CLIENTS_PREFIX}/d/mqueue_messages")[1]["data"] == []


def test_a_client_whom_nobody_knows_is_not_found_unless_a_member_is_silent(desk: Desk) -> None:
    """Then nobody knows, and the call may be made again."""
    for method in ("GET", "DELETE"):
        status, content = desk.call(method, f"{CLIENTS_PREFIX}/nobody")
        assert (status, content["code"]) == (404, "CLIENTID_NOT_FOUND")
    desk.silent = {3}
    for method in ("GET", "DELETE"):
        status, content = desk.call(method, f"{CLIENTS_PREFIX}/c")
        assert status == 503
        assert content["message"] == "no member that answers has this client; no answer has come from node 3"


def test_a_client_is_kicked_wherever_it_is(desk: Desk) -> None:
    """Both of its Sessions end."""
    assert desk.call("DELETE", f"{CLIENTS_PREFIX}/b")[0] == 204
    assert desk.call("DELETE", f"{CLIENTS_PREFIX}/c")[0] == 204
    assert [row["clientid"] for page in desk.pages(CLIENTS_PREFIX) for row in page] == ["a", "d"]
    assert desk.call("GET", f"{CLIENTS_PREFIX}/b")[0] == 404


def test_a_subscription_ends_wherever_its_client_is(desk: Desk) -> None:
    """At both members that have one. A client without it is told from an unknown one."""
    for name in ("b", "c"):
        body = json.dumps({"topic": f"{name}/1"}).encode()
        assert desk.unsubscribe(name, body) == (204, None)
    rows = [row for page in desk.pages(SUBSCRIPTIONS_PREFIX) for row in page]
    assert [row["topic"] for row in rows] == ["a/1", "a/2", "b/2", "b/2", "c/2", "d/1", "d/2"]
    desk.brokers[3].client("p").publish("c/1")
    status, content = desk.unsubscribe("c", b'{"topic": "c/1"}')
    assert (status, content["message"]) == (404, "the client has no subscription to 'c/1'")
    status, content = desk.unsubscribe("nobody", b'{"topic": "c/1"}')
    assert (status, content["code"]) == (404, "CLIENTID_NOT_FOUND")
    for bad in (b"[]", b"{}", b'{"topic": 1}', b'{"topic": "a", "x": 1}', b"{"):
        assert desk.unsubscribe("c", bad)[0] == 400


def test_a_member_answers_nothing_else(desk: Desk) -> None:
    """A question for another call is an error in the log of the member that is asked."""
    failures: list[Any] = []
    desk.calls[2].answer(b'{"call": "POST /api/v5/publish", "arguments": {}, "body": ""}').addErrback(failures.append)
    assert [str(failure.value) for failure in failures] == ["no member asks 'POST /api/v5/publish'"]


@given(st.lists(st.sets(st.integers(0, 30)), min_size=1, max_size=4), st.integers(1, 8), st.data())
def test_pages_of_any_members_are_merged_in_order(numbers: list[set[int]], limit: int, data: st.DataObject) -> None:
    """Each entry once, in order, with pages of any length of each member; each page goes on behind the last one."""
    lists = [sorted(f"{number:02}" for number in each) for each in numbers]
    found: list[tuple[str, str]] = []
    cursor: str | None = ""
    after = ""
    while cursor is not None:
        pages = []
        for node, names in enumerate(lists):
            left = [name for name in names if name > after]
            shown = left[: data.draw(st.integers(1, limit))]
            more = len(left) > len(shown)
            meta = {"hasnext": more, **({"cursor": cursor_for(shown[-1])} if more else {})}
            pages.append({"data": [{"clientid": name, "node": str(node)} for name in shown], "meta": meta})
        rows, cursor = merged(["clientid"], pages, limit)
        found += [(row["clientid"], row["node"]) for row in rows]
        after = "" if cursor is None else place_of(cursor)
    assert found == sorted((name, str(node)) for node, names in enumerate(lists) for name in names)


def place_of(cursor: str) -> str:
    """Return the client that a cursor names."""
    parts = parts_of({"cursor": cursor}, 1)
    assert parts is not None
    return str(parts[0])
