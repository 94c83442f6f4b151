"""Calls about clients: what they show, how pages follow each other, and what a kick does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.admin.api.clients import CLIENTS_PREFIX, SUBSCRIPTIONS_PREFIX, ClientCalls
from holdfast.admin.call import Answer, Call, Caller, Scope
from holdfast.admin.routing import RoutingTable
from holdfast.core.topics import covers, matches
from holdfast.sessions.directory import Directory
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker

HOSTILE = ("<script>alert(1)</script>", "'; DROP TABLE sessions; --", "a/../../etc", "\u202egnp", "é\U0001f600", "=1+1",
           '"')  # fmt: skip
ALICE = Caller("alice", 1000, frozenset({Scope.ADMIN}))


class Desk:
    """A broker in memory, and the calls about its clients."""

    def __init__(self, most_looks: int = 20_000) -> None:
        self.broker = MemoryBroker()
        work = self.broker.session_parts.broker_parts.long_work
        directory = Directory(self.broker.registry, work, most_looks)
        self.table = RoutingTable(ClientCalls(directory, "1", lambda _: "default").routes, most_levels=lambda: 128)

    def call(self, method: str, path: str, **arguments: str) -> tuple[int, Any]:
        """Make a call, and let the broker do its work; return status and content."""
        answers: list[Answer] = []
        self.table.answer(Call(method, path, arguments, b"", ALICE)).addCallback(answers.append)
        self.broker.settle()
        (found,) = answers
        return found.status, json.loads(found.body) if found.body else None

    def pages(self, path: str, **arguments: str) -> Iterator[list[Any]]:
        """Yield the entries of all pages."""
        cursor: dict[str, str] = {}
        while True:
            status, content = self.call("GET", path, **arguments, **cursor)
            assert status == 200
            yield content["data"]
            assert content["meta"]["hasnext"] == ("cursor" in content["meta"])
            if not content["meta"]["hasnext"]:
                return
            cursor = {"cursor": content["meta"]["cursor"]}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def away(desk: Desk, client_id: str, version: int = 4) -> None:
    """Leave a Session whose client is not connected."""
    desk.broker.client(client_id, version, clean=False).drop()


def test_a_connected_client_and_one_that_is_away_are_shown(desk: Desk) -> None:
    """The times of a Session are known from its beginning on; fields of a connection only while there is one."""
    desk.broker.client("here", 5, username="ann", keep_alive=30).subscribe("a/#")
    away(desk, "there")
    status, content = desk.call("GET", CLIENTS_PREFIX)
    assert status == 200
    here, there = content["data"]
    assert (here["clientid"], here["username"], here["connected"]) == ("here", "ann", True)
    assert (here["keepalive"], here["proto_name"], here["proto_ver"], here["clean_start"]) == (30, "MQTT", 5, True)
    assert (here["subscriptions_cnt"], here["node"], here["zone"], here["listener"]) == (1, "1", "default", "test")
    assert here["connected_at"] == here["created_at"]
    assert "disconnected_at" not in here
    assert (there["clientid"], there["connected"], there["expiry_interval"]) == ("there", False, 7200)
    assert "connected_at" not in there
    assert "keepalive" not in there
    assert there["disconnected_at"] >= there["created_at"]
    assert desk.call("GET", f"{CLIENTS_PREFIX}/here") == (200, here)
    assert content["meta"] == {"page": 1, "limit": 100, "count": 2, "hasnext": False}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [({"clientid": "b"}, ["b"]), ({"clientid": "x"}, []), ({"like_clientid": "b"}, ["ab", "b"]),
     ({"username": "ann"}, ["ab"]), ({"like_username": "n"}, ["ab", "b"]), ({"conn_state": "connected"}, ["ab", "b"]),
     ({"conn_state": "disconnected"}, ["c"]), ({"listener": "test"}, ["ab", "b", "c"]), ({"listener": "x"}, []),
     ({"like_clientid": "b", "username": "dan"}, ["b"])],
)  # fmt: skip
def test_clients_are_found_by_conditions(desk: Desk, arguments: dict[str, str], found: list[str]) -> None:
    desk.broker.client("ab", username="ann")
    desk.broker.client("b", username="dan")
    away(desk, "c")
    _, content = desk.call("GET", CLIENTS_PREFIX, **arguments)
    assert [each["clientid"] for each in content["data"]] == found


@pytest.mark.parametrize("client_id", HOSTILE)
def test_hostile_names_are_shown_as_they_are(desk: Desk, client_id: str) -> None:
    """Each name comes back unchanged from lists, paths and cursors, and can be kicked."""
    client = desk.broker.client(client_id, 5, username=client_id)
    client.subscribe(f"t/{client_id}".replace("#", "").replace("+", ""))
    desk.broker.client("\U0010fffd")
    path = f"{CLIENTS_PREFIX}/{quote(client_id, safe='')}"
    for conditions in ({"clientid": client_id}, {"like_username": client_id}):
        assert desk.call("GET", CLIENTS_PREFIX, **conditions)[1]["data"][0]["username"] == client_id
    assert desk.call("GET", path)[1]["clientid"] == client_id
    assert [each["clientid"] for each in desk.call("GET", f"{path}/subscriptions")[1]] == [client_id]
    names = [each["clientid"] for page in desk.pages(CLIENTS_PREFIX, limit="1") for each in page]
    assert names == [client_id, "\U0010fffd"]
    assert desk.call("DELETE", path) == (204, None)
    assert desk.call("GET", path)[0] == 404


@settings(max_examples=30, deadline=None)
@given(
    names=st.sets(st.text("ab/é\U0001f600", min_size=1, max_size=4), max_size=12),
    limit=st.integers(1, 5),
    most_looks=st.integers(1, 30),
)
def test_all_pages_together_have_each_session_and_subscription_once(
    names: set[str], limit: int, most_looks: int
) -> None:
    """Whatever the limit, and however early a search gives a page back."""
    desk = Desk(most_looks)
    expected = []
    for number, name in enumerate(names):
        filters = [f"t/{each}" for each in range(number % 4)]
        desk.broker.client(name, clean=False).subscribe(*filters) if filters else away(desk, name)
        expected += [(name, each) for each in filters]
    pages = list(desk.pages(CLIENTS_PREFIX, limit=str(limit)))
    assert [each["clientid"] for page in pages for each in page] == sorted(names)
    assert all(len(page) <= limit for page in pages)
    found = [each for page in desk.pages(SUBSCRIPTIONS_PREFIX, limit=str(limit)) for each in page]
    assert [(each["clientid"], each["topic"]) for each in found] == sorted(expected)


def test_a_list_goes_on_behind_a_client_that_has_gone(desk: Desk) -> None:
    for name in "abcd":
        desk.broker.client(name)
    pages = desk.pages(CLIENTS_PREFIX, limit="2")
    assert [each["clientid"] for each in next(pages)] == ["a", "b"]
    assert desk.call("DELETE", f"{CLIENTS_PREFIX}/b")[0] == 204
    assert [each["clientid"] for each in next(pages)] == ["c", "d"]


def test_a_page_visits_no_more_sessions_than_allowed() -> None:
    """A search that finds nothing returns an empty page with a cursor, after so many looks."""
    desk = Desk(most_looks=20)
    for number in range(50):
        desk.broker.client(f"c{number:02}")
    _, content = desk.call("GET", CLIENTS_PREFIX, username="nobody")
    assert content["data"] == []
    assert content["meta"]["hasnext"] is True
    assert sum(1 for _ in desk.pages(CLIENTS_PREFIX, username="nobody")) == 3


@pytest.mark.parametrize(
    ("arguments", "found"),
    [({"clientid": "b"}, ["x/+"]), ({"topic": "x/#"}, ["x/#"]), ({"topic": "y"}, ["$share/g/y"]),
     ({"topic": "$share/g/y"}, ["$share/g/y"]), ({"share_group": "g"}, ["$share/g/y"]), ({"qos": "1"}, ["x/+"]),
     ({"match_topic": "x/1"}, ["x/#", "x/+"]), ({"match_topic": "x/+"}, ["x/+"]),
     ({"match_topic": "#"}, ["$share/g/y", "x/#", "x/+"]), ({"qos": "1", "clientid": "a"}, [])],
)  # fmt: skip
def test_subscriptions_are_found_by_conditions(desk: Desk, arguments: dict[str, str], found: list[str]) -> None:
    desk.broker.client("a", 5).subscribe("x/#", "$share/g/y")
    desk.broker.client("b", 5).subscribe("x/+", qos=1)
    _, content = desk.call("GET", SUBSCRIPTIONS_PREFIX, **arguments)
    assert [each["topic"] for each in content["data"]] == found


def test_subscriptions_to_queue_are_found_as_the_client_wrote_them(desk: Desk) -> None:
    """EMQX's spelling is shown as the shared subscription that it is, and both spellings find it."""
    desk.broker.client("a", 5).subscribe("$queue/jobs")
    for topic in ("$queue/jobs", "$share/$queue/jobs", "jobs"):
        _, content = desk.call("GET", SUBSCRIPTIONS_PREFIX, topic=topic)
        assert [(each["topic"], each["share_group"]) for each in content["data"]] == [("$share/$queue/jobs", "$queue")]


FILTERS = st.lists(st.sampled_from(["a", "b", "+", ""]), min_size=1, max_size=3).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"]), "#"])
)
NAMES = ["/".join(["a", "b", "", "z"][number // 4**level % 4] for level in range(depth)) for depth in (1, 2, 3, 4)
         for number in range(4**depth)]  # fmt: skip


@example(wide="+/+/#", narrow="/#")
@given(wide=FILTERS.filter(bool), narrow=FILTERS.filter(bool))
def test_a_filter_covers_another_if_it_matches_all_of_its_topics(wide: str, narrow: str) -> None:
    """Levels that neither filter names stand for all others, so short names over few levels decide it."""
    topics = [name for name in NAMES if name and matches(narrow, name)]
    assert covers(wide, narrow) == all(matches(wide, name) for name in topics)


@pytest.mark.parametrize(
    ("path", "arguments"),
    [("", {"limit": "0"}), ("", {"limit": "1001"}), ("", {"limit": "x"}), ("", {"conn_state": "idle"}),
     ("", {"cursor": "%%"}), ("", {"cursor": "bnVsbA"}), ("", {"cursor": "W251bGxd"}), ("", {"cursor": "é"}),
     ("", {"colour": "red"}), ("/a/mqueue_messages", {"cursor": "-1"}), ("/a/mqueue_messages", {"payload": "plain"}),
     ("/a/inflight_messages", {"limit": "9" * 30})],
)  # fmt: skip
def test_bad_arguments_are_refused(desk: Desk, path: str, arguments: dict[str, str]) -> None:
    """The refusal names the argument."""
    desk.broker.client("a")
    status, content = desk.call("GET", CLIENTS_PREFIX + path, **arguments)
    assert status == 400
    assert content["field"] in arguments


@pytest.mark.parametrize(
    "arguments", [{"match_topic": "a/#/b"}, {"match_topic": ""}, {"qos": "3"}, {"cursor": "WyJhIl0"}]
)
def test_bad_conditions_of_subscriptions_are_refused(desk: Desk, arguments: dict[str, str]) -> None:
    assert desk.call("GET", SUBSCRIPTIONS_PREFIX, **arguments)[0] == 400


@pytest.mark.parametrize("name", ["topic", "match_topic"])
def test_an_argument_has_no_more_levels_than_topics_of_clients(desk: Desk, name: str) -> None:
    assert desk.call("GET", SUBSCRIPTIONS_PREFIX, **{name: "/" * 127})[0] == 200
    status, content = desk.call("GET", SUBSCRIPTIONS_PREFIX, **{name: "/" * 128})
    assert (status, content["field"], content["allowed"]) == (400, name, "at most 128 levels")
    assert "mqtt.max_topic_levels" in content["detail"]


@pytest.mark.parametrize("path", ["", "/subscriptions", "/mqueue_messages", "/inflight_messages"])
def test_an_unknown_client_is_not_found(desk: Desk, path: str) -> None:
    status, content = desk.call("GET", f"{CLIENTS_PREFIX}/nobody{path}")
    assert (status, content["code"]) == (404, "CLIENTID_NOT_FOUND")


def test_a_kicked_client_is_told_and_its_session_ends(desk: Desk) -> None:
    """It gets 0x98 in MQTT 5, its Will is published though it has a delay, and it finds no Session later."""
    watcher = desk.broker.client("w")
    watcher.subscribe("will")
    will = p.Will("will", b"gone", 0, False, Properties(will_delay_interval=600))
    lasting = Properties(session_expiry_interval=3600)
    kicked = desk.broker.client("k", 5, will=will, properties=lasting)
    assert desk.call("DELETE", f"{CLIENTS_PREFIX}/k") == (204, None)
    (told,) = kicked.got(p.Disconnect)
    assert told.reason_code == ReasonCode.ADMINISTRATIVE_ACTION
    assert kicked.network.closed
    assert watcher.messages() == [("will", b"gone", 0, False)]
    again = desk.broker.client("k", 5, clean=False, properties=lasting)
    assert again.connack is not None
    assert not again.connack.session_present


def test_a_session_whose_client_is_away_can_be_ended(desk: Desk) -> None:
    away(desk, "a")
    assert desk.call("DELETE", f"{CLIENTS_PREFIX}/a") == (204, None)
    assert desk.call("DELETE", f"{CLIENTS_PREFIX}/a")[0] == 404
    assert desk.call("GET", CLIENTS_PREFIX)[1]["data"] == []
    assert desk.broker.registry.session_count == 0


def test_an_old_client_is_kicked_without_a_packet(desk: Desk) -> None:
    """MQTT 3 has no DISCONNECT from the Server [MQTT311-3.14]."""
    old = desk.broker.client("k", 4, clean=False)
    assert desk.call("DELETE", f"{CLIENTS_PREFIX}/k") == (204, None)
    assert old.packets() == []
    assert old.network.closed


def test_queued_messages_are_shown_page_by_page(desk: Desk) -> None:
    """Messages that leave the queue meanwhile move nothing: each of the others is shown once."""
    reader = desk.broker.client("q", clean=False)
    reader.subscribe("t", qos=1)
    reader.drop()
    sender = desk.broker.client("s", username="sam")
    for number in range(5):
        sender.publish("t", b"%d" % number, qos=1)
    path = f"{CLIENTS_PREFIX}/q/mqueue_messages"
    pages = desk.pages(path, limit="2", payload="base64")
    first = next(pages)
    assert [(each["topic"], each["qos"], each["payload"]) for each in first] == [("t", 1, "MA=="), ("t", 1, "MQ==")]
    assert (first[0]["from_clientid"], first[0]["from_username"], first[0]["payload_size"]) == ("s", "sam", 1)
    session = desk.broker.registry.session_of("q")
    assert session is not None
    session.queue.discard(session.queue.first)
    assert [each["payload"] for page in pages for each in page] == ["Mg==", "Mw==", "NA=="]
    assert "payload" not in desk.call("GET", path)[1]["data"][0]


def test_a_page_of_messages_is_bounded_in_bytes(desk: Desk) -> None:
    """A page ends before the payloads exceed a mebibyte, and is never empty because of that."""
    reader = desk.broker.client("q", clean=False)
    reader.subscribe("t", qos=1)
    reader.drop()
    sender = desk.broker.client("s")
    for _ in range(3):
        sender.publish("t", bytes(600_000), qos=1)
    pages = list(desk.pages(f"{CLIENTS_PREFIX}/q/mqueue_messages"))
    assert [len(page) for page in pages] == [1, 1, 1]


def test_messages_in_flight_are_shown(desk: Desk) -> None:
    """Of a Session that ends with its connection only Packet Identifiers are kept: their number is told."""
    kept = desk.broker.client("k", 5, properties=Properties(session_expiry_interval=60))
    kept.subscribe("t", qos=2)
    brief = desk.broker.client("b", 5)
    brief.subscribe("t", qos=1)
    sender = desk.broker.client("s")
    for number in range(3):
        sender.publish("t", b"%d" % number, qos=2)
    found = [each for page in desk.pages(f"{CLIENTS_PREFIX}/k/inflight_messages", limit="2", payload="base64")
             for each in page]  # fmt: skip
    assert [(each["packet_id"], each["payload"], each["state"]) for each in found] == [
        (1, "MA==", "sent"), (2, "MQ==", "sent"), (3, "Mg==", "sent")
    ]  # fmt: skip
    kept.send(p.Pubrec(1))
    released = desk.call("GET", f"{CLIENTS_PREFIX}/k/inflight_messages")[1]["data"][0]
    assert released == {"packet_id": 1, "state": "released", "qos": 2}
    _, content = desk.call("GET", f"{CLIENTS_PREFIX}/b/inflight_messages")
    assert content["data"] == []
    assert content["meta"]["unlisted"] == 3


@pytest.mark.parametrize("path", [CLIENTS_PREFIX, SUBSCRIPTIONS_PREFIX])
def test_pages_have_numbers_as_in_emqx(path: str) -> None:
    """A page by its number is the one that the cursors lead to, and only a list without conditions tells its length."""
    desk = Desk(most_looks=3)
    for number in range(11):
        desk.broker.client(f"client-{number:02}").subscribe("a/#")
    whole = [each["clientid"] for page in desk.pages(path, limit="4") for each in page]
    found = []
    for page in ("1", "2", "3"):
        _, content = desk.call("GET", path, limit="4", page=page)
        assert (content["meta"]["page"], content["meta"]["count"]) == (int(page), 11)
        assert content["meta"]["hasnext"] or page == "3"
        found += content["data"]
    assert [each["clientid"] for each in found] == whole
    status, content = desk.call("GET", path, limit="4", page="9")
    assert (status, content["data"], content["meta"]["hasnext"]) == (200, [], False)
    assert "count" not in desk.call("GET", path, clientid="client-01")[1]["meta"]
    assert desk.call("GET", path, page="2", cursor="WyJhIl0")[0] == 400
