"""Questions about retained messages: the answers, who gets them, what they may tell, and what is refused."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.topics import matches
from holdfast.identity.bans import Ban, Bans, Exempt, Kind
from holdfast.identity.interfaces import Grant, Principal
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.authorizers import Listed, Permissions
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

TOPICS = ("plant/1/a", "plant/1/b", "plant/2", "plant/2/a", "$own/a")
ASKS = Properties(response_topic="my/answer", correlation_data=b"17")


class PartlyGranted(Listed):
    """Grants every subscription, and is asked for each delivery."""

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant:
        return Grant.FILTERED

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        return Grant.FILTERED


def asker(broker: MemoryBroker, client_id: str = "c", qos: int = 1, **properties: Any) -> Client:
    """Return a connected client that is subscribed to the topic of its answers."""
    client = broker.client(client_id, 5, properties=Properties(**properties))
    client.subscribe("my/+", qos=qos)
    return client


def retaining(broker: MemoryBroker, *topics: str) -> None:
    """Retain a message for each topic, with its topic as payload."""
    publisher = broker.client("publisher")
    for topic in topics or TOPICS:
        publisher.publish(topic, topic.encode(), 1, True)


def ask(
    client: Client, kind: str, qos: int = 0, properties: Properties = ASKS, retain: bool = False, **question: Any
) -> list[p.Packet]:
    """Ask, and return all that comes."""
    client.publish(f"$retained/{kind}", json.dumps(question).encode(), qos, retain, properties)
    return client.packets()


def told(packets: list[p.Packet]) -> dict[str, Any]:
    """Return the only answer among the packets."""
    (packet,) = [packet for packet in packets if isinstance(packet, p.Publish)]
    found: dict[str, Any] = json.loads(packet.payload)
    return found


def all_topics(client: Client, **question: Any) -> list[str]:
    """Ask page by page; return the topics."""
    found, after = [], None
    for _ in range(200):
        answer = told(ask(client, "get", **question, **({} if after is None else {"after": after})))
        found += [one["topic"] for one in answer["messages"]]
        after = answer["after"]
        if after is None:
            return found
    raise AssertionError("the answers never end")


def test_get_answers_with_messages(broker: MemoryBroker) -> None:
    """The answer has the messages that match, comes on the Response Topic, and brings the Correlation Data back."""
    retaining(broker)
    client = asker(broker)
    (packet,) = ask(client, "get", filter="plant/1/+")
    assert isinstance(packet, p.Publish)
    assert (packet.topic, packet.qos, packet.retain) == ("my/answer", 0, False)
    assert packet.properties.correlation_data == b"17"
    assert packet.properties.content_type == "application/json"
    answer = json.loads(packet.payload)
    assert answer["after"] is None
    first, second = answer["messages"]
    assert b64decode(first.pop("payload")) == b"plant/1/a"
    assert int(first.pop("revision")) < int(second["revision"])
    assert first == {
        "topic": "plant/1/a", "qos": 1, "size": 9, "stored_at": "2027-01-15T08:00:00.000Z", "expires_at": None,
        "properties": {},
    }  # fmt: skip


def test_fields_are_chosen(broker: MemoryBroker) -> None:
    """Only the wanted fields are told, and always the topic."""
    retaining(broker)
    answer = told(ask(asker(broker), "get", filter="plant/2", fields=["qos"]))
    assert answer["messages"] == [{"topic": "plant/2", "qos": 1}]


def test_count_and_tree(broker: MemoryBroker) -> None:
    """A count has number and bytes; the tree has the next level, without topics that begin with $."""
    retaining(broker)
    client = asker(broker)
    counted = told(ask(client, "count", filter="plant/#"))
    assert (counted["count"], counted["after"]) == (4, None)
    assert counted["bytes"] > 4 * len("plant/1/a")
    (plant,) = told(ask(client, "tree"))["nodes"]
    assert (plant["name"], plant["count"], plant["has_message"], plant["children"]) == ("plant", 4, False, True)
    level = told(ask(client, "tree", topic="plant"))
    assert [(n["topic"], n["count"], n["has_message"]) for n in level["nodes"]] == [
        ("plant/1", 2, False), ("plant/2", 2, True),
    ]  # fmt: skip
    assert level["after"] is None
    assert level["complete"]


@pytest.mark.parametrize(("own", "pages"), [(False, 2), (True, 1)])
def test_a_level_of_names_that_are_not_told_costs_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool, pages: int
) -> None:
    """Names without messages are passed part by part, an answer for each part. Topics that begin with $ are jumped."""
    monkeypatch.setattr("holdfast.retained.permitted._MOST_WALKS", 10)
    broker = RestartableBroker(fresh_file(tmp_path))
    topics = [f"{'$' if own else ''}gone{number:02}" for number in range(40)]
    retaining(broker, *topics, "here")
    if not own:
        client = broker.client("publisher")
        for topic in topics:
            client.publish(topic, b"", 1, True)
    client = asker(broker)
    walks: list[str] = []
    walk = broker.store.scans.level

    def counted(base: str, low: str, *rest: Any) -> Any:
        walks.append(low)
        return walk(base, low, *rest)

    broker.store.scans.level = counted
    found: list[list[str]] = []
    after: dict[str, Any] = {}
    for _ in range(9):
        walks.clear()
        level = told(ask(client, "tree", limit=1, **after))
        assert len(walks) <= 10
        found.append([node["topic"] for node in level["nodes"]])
        if level["after"] is None:
            break
        assert "gone" not in level["after"]
        after = {"after": level["after"]}
    assert found == [[], ["here"]][-pages:]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_answers_go_on_after_the_last_one(broker: MemoryBroker, limit: int) -> None:
    """Page by page, each message and each node comes once."""
    retaining(broker)
    client = asker(broker)
    assert all_topics(client, filter="plant/#", limit=limit) == list(TOPICS[:4])
    nodes: list[str] = []
    after: dict[str, Any] = {}
    for _ in range(3):
        level = told(ask(client, "tree", topic="plant", limit=limit, **after))
        nodes += [node["topic"] for node in level["nodes"]]
        if level["after"] is None:
            break
        after = {"after": level["after"]}
    assert nodes == ["plant/1", "plant/2"]


def test_a_client_sees_its_own_changes(broker: MemoryBroker) -> None:
    """A question behind a retained message of the same client sees it, also with QoS 0."""
    client = asker(broker)
    client.publish("plant/9", b"x", 0, True)
    assert all_topics(client, filter="plant/#") == ["plant/9"]
    client.publish("plant/9", b"", 0, True)
    assert all_topics(client, filter="plant/#") == []


def test_only_the_asking_client_gets_the_answer(broker: MemoryBroker) -> None:
    """Others get neither the answer nor the question, whatever they subscribe to, and nothing is retained."""
    other = broker.client("other", 5)
    other.subscribe("#", "my/answer", "$retained/#")
    client = asker(broker)
    assert told(ask(client, "count", filter="#")) == {"count": 0, "bytes": 0, "after": None}
    assert other.packets() == []
    assert broker.client("late", 5).subscribe("#", "$retained/#")[1:] == []


@pytest.mark.parametrize(("asked", "subscribed", "answered"), [(0, 2, 0), (1, 2, 1), (2, 1, 1), (2, 2, 2), (1, 0, 0)])
def test_qos_of_the_answer(broker: MemoryBroker, asked: int, subscribed: int, answered: int) -> None:
    """The answer has the QoS of the question at most, and that of the subscription."""
    client = asker(broker, qos=subscribed)
    *acknowledgement, packet = ask(client, "count", qos=asked, filter="#")
    assert [type(one) for one in acknowledgement] == {0: [], 1: [p.Puback], 2: [p.Pubrec]}[asked]
    assert isinstance(packet, p.Publish)
    assert packet.qos == answered


def test_a_repeated_question_is_answered_once(broker: MemoryBroker) -> None:
    """A QoS 2 question that is sent again gets its PUBREC, and no second answer."""
    client = asker(broker)
    question = p.Publish("$retained/count", b'{"filter":"#"}', 2, False, False, 9, ASKS)
    client.send(question)
    client.send(question)
    assert [type(one) for one in client.packets()] == [p.Pubrec, p.Publish, p.Pubrec]


def test_the_answer_keeps_to_the_receive_maximum(broker: MemoryBroker) -> None:
    """Answers wait for the window like other messages."""
    client = asker(broker, receive_maximum=1)
    ask(client, "count", qos=1, filter="#")
    assert [type(one) for one in ask(client, "count", qos=1, filter="#")] == [p.Puback]
    client.send(p.Puback(1))
    assert told(client.packets()) == {"count": 0, "bytes": 0, "after": None}


@pytest.mark.parametrize("most", [180, 300, 1000])
def test_answers_fit_the_maximum_packet_size(broker: MemoryBroker, most: int) -> None:
    """An answer is cut so that it fits, and the next one goes on; a payload without room is left out."""
    topics = [f"plant/{number:03}" for number in range(30)]
    retaining(broker, *topics, "plant/long")
    broker.client("p").publish("plant/long", bytes(2000), 1, True)
    client = asker(broker, maximum_packet_size=most)
    assert all_topics(client, filter="plant/#", fields=["payload"]) == [*topics, "plant/long"]
    after = told(ask(client, "get", filter="plant/long", fields=["payload", "size"]))
    assert after["messages"] == [{"topic": "plant/long", "payload": None, "size": 2000}]
    assert broker.counters.messages_dropped_too_large == 0


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        ("get", b"{", "this is not JSON"),
        ("get", b"[]", "the payload is a JSON object"),
        ("get", b"{}", "filter: a Topic Filter has at least one character"),
        ("get", b'{"filter": "a#"}', "filter: '#' stands alone in the last level"),
        ("get", b'{"filter": "$share/a/b"}', "filter is a Topic Filter without $share"),
        ("get", b'{"filter": 1}', "filter is a string"),
        ("get", b'{"filter": "a", "limit": 0}', "limit is a whole number, 1 to 1000"),
        ("get", b'{"filter": "a", "limit": true}', "limit is a whole number, 1 to 1000"),
        ("get", b'{"filter": "a", "fields": ["secret"]}', "fields is a list of topic, "),
        ("get", b'{"filter": "a", "after": "a"}', "after is what the last answer to the same question said"),
        ("get", b'{"filter": "a", "after": "~AAAA"}', "after is what the last answer to the same question said"),
        ("count", b'{"filter": "a", "limit": 1}', "limit is not known for $retained/count, only filter, after"),
        ("tree", b'{"topic": "a/+"}', "topic: a Topic Name contains no wildcard characters"),
        ("tree", b'{"topic": "a", "after": "=b/c"}', "after is what the last answer to the same question said"),
        ("get", b'{"filter": "' + b"a" * 200_000 + b'"}', "the payload has at most"),
        ("get", b"[" + b"1," * 2000 + b"1]", "the payload has at most"),
    ],
)
def test_bad_questions_are_refused(broker: MemoryBroker, kind: str, payload: bytes, reason: str) -> None:
    """A question that is not understood is refused with 0x83, and told why, also on its Response Topic."""
    client = asker(broker)
    client.publish(f"$retained/{kind}", payload, 1, False, ASKS)
    puback, answer = client.packets()
    assert isinstance(puback, p.Puback)
    assert puback.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert (puback.properties.reason_string or "").startswith(reason)
    assert isinstance(answer, p.Publish)
    assert json.loads(answer.payload) == {"error": "bad-request", "reason": puback.properties.reason_string}


@pytest.mark.parametrize("topic", [None, "other/answer", "$SYS/x"])
def test_questions_need_a_topic_of_the_client(broker: MemoryBroker, topic: str | None) -> None:
    """Without a Response Topic that a subscription of the client matches, the question is refused with 0x83."""
    client = asker(broker)
    client.subscribe("$share/g/other/answer")
    (puback,) = ask(client, "count", qos=1, properties=Properties(response_topic=topic), filter="#")
    assert isinstance(puback, p.Puback)
    assert puback.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert puback.properties.reason_string
    assert ask(client, "count", properties=Properties(response_topic=topic), filter="#") == []


def test_retain_is_refused(broker: MemoryBroker) -> None:
    """A question with RETAIN 1 is refused, and not retained."""
    client = asker(broker)
    puback, _ = ask(client, "count", qos=1, retain=True, filter="#")
    assert isinstance(puback, p.Puback)
    assert puback.properties.reason_string == "a question has RETAIN 0"
    assert broker.client("late").subscribe("$retained/#")[1:] == []


@pytest.mark.parametrize("version", [3, 4])
def test_older_versions_cannot_ask(broker: MemoryBroker, version: int) -> None:
    """MQTT 3 has no Response Topic: the message is acknowledged, and dropped."""
    client = broker.client("c", version)
    client.subscribe("#")
    client.publish("$retained/count", b'{"filter":"#"}', 1)
    (puback,) = client.packets()
    assert isinstance(puback, p.Puback)
    assert broker.counters.messages_dropped_not_authorized == 1


def test_a_filter_that_may_not_be_subscribed_is_refused() -> None:
    """The permission is that of a SUBSCRIBE: without it 0x87, and a denial is reported."""
    permissions = Permissions()
    permissions.deny("subscribe", "secret/#")
    broker = MemoryBroker(authorizer=permissions)
    client = asker(broker)
    questions: dict[str, dict[str, Any]] = {
        "get": {"filter": "secret/a"}, "count": {"filter": "#"}, "tree": {"topic": "secret"},
    }  # fmt: skip
    for kind, question in questions.items():
        puback, answer = ask(client, kind, qos=1, **question)
        assert isinstance(puback, p.Puback)
        assert puback.reason_code == ReasonCode.NOT_AUTHORIZED
        assert told([answer])["error"] == "not-authorized"
    assert ("c", "subscribe", "secret/a") in broker.denied


def test_only_what_may_be_received_is_told() -> None:
    """Of a filter that is allowed in part, neither messages nor counts nor nodes tell of the rest."""
    permissions = Permissions()
    permissions.deny("receive", "plant/1/#")
    broker = MemoryBroker(authorizer=permissions)
    retaining(broker)
    client = asker(broker)
    assert all_topics(client, filter="plant/#", limit=1) == ["plant/2", "plant/2/a"]
    assert told(ask(client, "count", filter="plant/#"))["count"] == 2
    level = told(ask(client, "tree", topic="plant"))
    assert [(node["topic"], node["count"]) for node in level["nodes"]] == [("plant/2", 2)]


def test_where_an_answer_ended_tells_no_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that ends among topics that the client may not know does not tell where; it goes on all the same."""
    monkeypatch.setattr("holdfast.retained.permitted.MOST_READ", 1)
    broker = MemoryBroker(authorizer=PartlyGranted({"c": ["open/#", "my/#"]}, {}))
    retaining(broker, "hidden/a", "hidden/b", "open/a")
    client = asker(broker)
    counted = 0
    after: dict[str, Any] = {}
    for _ in range(10):
        answer = told(ask(client, "count", filter="+/+", **after))
        counted += answer["count"]
        assert "hidden" not in (answer["after"] or "")
        if answer["after"] is None:
            break
        after = {"after": answer["after"]}
    assert counted == 1
    assert after
    refused = told(ask(client, "count", filter="open/+", **after))
    assert refused["error"] == "bad-request"


@pytest.mark.parametrize("why", ["", "rules", "ban"])
def test_withheld_messages_are_not_told(why: str) -> None:
    """A message whose publisher may not retain it any more, or is banned, is told in no answer."""
    listed, bans = Listed({}, {}), Bans(now=lambda: 0, exempt=Exempt())
    broker = MemoryBroker(authorizer=listed, checks_sources=True, bans=bans)
    publisher = broker.client("p", username="alice")
    publisher.publish("plant/1", b"x", 1, True)
    listed.change({}, {"alice": ["other/#"] if why == "rules" else ["plant/#"]})
    if why == "ban":
        bans.add(Ban(kind=Kind.USERNAME, who="alice"))
    allowed = not why
    client = asker(broker)
    assert all_topics(client, filter="plant/#") == ["plant/1"] * allowed
    assert told(ask(client, "count", filter="plant/#"))["count"] == allowed
    assert len(told(ask(client, "tree", topic="plant"))["nodes"]) == allowed


def test_questions_of_one_client_wait_for_each_other(broker: MemoryBroker) -> None:
    """They are answered in their order. Of more than some, the others are refused with 0x97."""
    client = asker(broker)
    question = p.Publish("$retained/count", b'{"filter":"#"}', 1, False, False, 0, ASKS)
    client.send(*[evolve(question, packet_identifier=number) for number in range(1, 8)])
    packets = client.packets()
    codes = [packet.reason_code for packet in packets if isinstance(packet, p.Puback)]
    assert codes.count(ReasonCode.QUOTA_EXCEEDED) == len(codes) - codes.count(0) > 0
    counters = broker.counters
    assert (counters.questions_answered, counters.questions_refused) == (codes.count(0), 7 - codes.count(0))
    answers = [json.loads(packet.payload) for packet in packets if isinstance(packet, p.Publish)]
    assert len(answers) == len(codes) == 7
    assert [answer.get("error") for answer in answers].count("busy") == codes.count(ReasonCode.QUOTA_EXCEEDED)


def test_a_client_that_leaves_stops_its_question(broker: MemoryBroker) -> None:
    """The end of the connection ends the work; the session, if it stays, gets no answer later."""
    client = asker(broker, session_expiry_interval=100)
    client.connection.receive(b"")
    client.send(
        p.Publish("$retained/count", b'{"filter":"#"}', 1, False, False, 1, ASKS), p.Disconnect(ReasonCode.SUCCESS)
    )
    client.packets()
    back = broker.client("c", 5, clean=False, properties=Properties(session_expiry_interval=100))
    assert back.backlog == []


def test_limits_of_the_zone_hold() -> None:
    """Where wildcards or wide replays are not offered, questions do not offer them either."""
    for limits in (Limits(wildcard_subscription=False), Limits(min_replay_levels=2)):
        broker = MemoryBroker(limits=limits)
        client = broker.client("c", 5)
        client.subscribe("my/answer", qos=1)
        assert told(ask(client, "get", filter="plant/#"))["error"] == "bad-request"
        assert told(ask(client, "get", filter="plant/1"))["messages"] == []


@settings(max_examples=25)
@given(st.sets(st.sampled_from(["a", "a/b", "a/b/c", "a!", "a!/b", "b", "b/c", "$x/y", "/a"])), st.integers(1, 4))
def test_answers_tell_what_a_subscription_brings(topics: set[str], limit: int) -> None:
    """All pages together have the topics that the filter matches, and so have counts and trees."""
    broker = MemoryBroker()
    if topics:
        retaining(broker, *topics)
    client = asker(broker)
    for topic_filter in ("#", "a/#", "+/b", "$x/#"):
        expected = sorted(topic for topic in topics if matches(topic_filter, topic))
        assert all_topics(client, filter=topic_filter, limit=limit) == expected
        assert told(ask(client, "count", filter=topic_filter))["count"] == len(expected)
    nodes = told(ask(client, "tree"))["nodes"]
    assert sum(node["count"] for node in nodes) == len([topic for topic in topics if topic[0] != "$"])
