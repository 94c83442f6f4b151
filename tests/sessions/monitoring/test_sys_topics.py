"""The broker's own topics: their values, when and to whom they are sent, and that they count apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent
from zope.interface import implementer

from holdfast.core.messages import HELD_ENTRY, ApplicationMessage
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.core.units import Rate
from holdfast.identity.interfaces import Grant, IAuthorizer, Principal
from holdfast.retained.limits import FlowSettings
from holdfast.scheduling.long_work import STEPS_IN_PART
from holdfast.sessions.limits import Limits
from holdfast.sessions.sys_topics import resident_memory
from holdfast.watch.log import LastingFailure
from holdfast.wire import ConnectReturnCode, Properties, ReasonCode
from holdfast.wire import packets as p
from tests.authorizers import Filtering
from tests.doubles import Client, MemoryBroker
from tests.logs import logged
from tests.mosquitto_topics import MOSQUITTO_TOPICS

INTERVAL = 10
PAGE = Path(__file__).parents[3] / "docs" / "operator" / "sys-topics.md"


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(sys_msg_interval=INTERVAL)


def told(packets: list[p.Packet]) -> dict[str, str]:
    """Return the values among the packets by topic, without $SYS/broker/. Each comes once."""
    found = [packet for packet in packets if isinstance(packet, p.Publish)]
    assert {packet.qos for packet in found} <= {0}
    values = {packet.topic.removeprefix("$SYS/broker/"): packet.payload.decode() for packet in found}
    assert len(values) == len(found)
    return values


def present(broker: MemoryBroker) -> dict[str, str]:
    """Return all present values, as a new subscriber gets them."""
    broker.advance(INTERVAL)
    observer = Client(broker)
    observer.connect("observer")
    values = told(observer.subscribe("$SYS/#"))
    observer.send(p.Disconnect())
    return values


# --- the values


def test_every_topic_of_mosquitto_in_its_format(broker: MemoryBroker) -> None:
    values = {f"$SYS/broker/{name}": value for name, value in present(broker).items()}
    assert set(values) >= set(MOSQUITTO_TOPICS)
    for topic, value in values.items():
        assert re.fullmatch(MOSQUITTO_TOPICS.get(topic, r".+"), value), topic
    assert values["$SYS/broker/version"] == "holdfast version 1.2.3"
    assert {topic for topic in values if not topic.startswith("$SYS/broker/holdfast/")} == set(MOSQUITTO_TOPICS)


def test_counted_packets_and_bytes(broker: MemoryBroker) -> None:
    """Packets of all types, PUBLISH packets with their bytes, and the bytes on the wire."""
    subscriber = broker.client("s")
    subscriber.subscribe("t", qos=1)
    publisher = broker.client("p")
    publisher.publish("t", b"hello")
    publisher.publish("t", b"hello", qos=1)
    publisher.publish("nobody", b"hello", retain=True)
    assert len(subscriber.messages()) == 2
    values = present(broker)
    received = {"CONNECT": 2 * (12 + 3), "SUBSCRIBE": 8, "PUBLISH": 10 + 12 + 15, "PUBACK": 4}
    sent = {"CONNACK": 2 * 4, "SUBACK": 5, "PUBLISH": 10 + 12, "PUBACK": 4}
    assert {name: values[name] for name in values if re.match("(publish/)?(messages|bytes)/", name)} == {
        "messages/received": "7",
        "messages/sent": "6",
        "messages/stored": "1",
        "publish/messages/received": "3",
        "publish/messages/sent": "2",
        "publish/messages/dropped": "0",
        "publish/bytes/received": str(received["PUBLISH"]),
        "publish/bytes/sent": str(sent["PUBLISH"]),
        "bytes/received": str(sum(received.values())),
        "bytes/sent": str(sum(sent.values())),
    }


def test_a_replay_is_counted_message_by_message(broker: MemoryBroker) -> None:
    publisher = broker.client("p")
    for number in range(5):
        publisher.publish(f"t/{number}", b"hello", retain=True)
    publisher.subscribe("t/#")
    values = present(broker)
    assert (values["publish/messages/sent"], values["publish/bytes/sent"]) == ("5", str(5 * 12))
    assert values["messages/sent"] == "7"  # CONNACK and SUBACK too
    assert (values["retained messages/count"], values["store/messages/bytes"]) == ("5", "1045")


def test_clients_sessions_and_subscriptions(broker: MemoryBroker) -> None:
    """The client that reads them is not counted: it comes after one interval and is gone at the next."""
    keeper = broker.client("keeper", 5, properties=Properties(session_expiry_interval=100))
    keeper.subscribe("a", "b/#", "$share/g/c", qos=1)
    broker.client("there").subscribe("$share/g/c")
    for name in ("x", "y"):
        broker.client(name)
    broker.advance(INTERVAL)
    keeper.drop()
    broker.client("p").publish("a", b"hello", qos=1)
    values = present(broker)
    assert {name.removeprefix("clients/"): values[name] for name in values if name.startswith("clients/")} == {
        "total": "5",
        "connected": "4",
        "active": "4",
        "disconnected": "1",
        "inactive": "1",
        "maximum": "4",
        "expired": "0",
    }
    assert (values["subscriptions/count"], values["shared_subscriptions/count"]) == ("2", "2")
    assert (values["messages/stored"], values["store/messages/count"]) == ("1", "1")
    assert values["store/messages/bytes"] == str(HELD_ENTRY + len("a" + "hello"))
    broker.advance(100)
    values = present(broker)
    assert (values["clients/total"], values["clients/expired"], values["subscriptions/count"]) == ("4", "1", "0")
    assert values["store/messages/count"] == "0"


def test_drops_are_counted_together_and_by_cause() -> None:
    broker = MemoryBroker(limits=Limits(max_mqueue_len=2), sys_msg_interval=INTERVAL)
    away = broker.client("away", 5, properties=Properties(session_expiry_interval=1000))
    away.subscribe("t", qos=1)
    away.drop()
    publisher = broker.client("p")
    for _ in range(5):
        publisher.publish("t", qos=1)
    publisher.publish("$SYS/t")
    values = present(broker)
    assert values["publish/messages/dropped"] == "4"
    assert values["holdfast/counters/messages_dropped_queue_full"] == "3"
    assert values["holdfast/counters/messages_dropped_not_authorized"] == "1"
    assert values["load/publish/dropped/1min"] == "3.68"  # 24 a minute: 24 * (1 - e**(-1/6))


def test_loads(broker: MemoryBroker) -> None:
    """The growth per minute, averaged. test_load_average.py has the formula."""
    client = broker.client("c")
    for _ in range(9):
        client.send(p.Pingreq())
    values = present(broker)
    assert [values[f"load/messages/received/{period}min"] for period in (1, 5, 15)] == ["9.21", "1.97", "0.66"]
    assert values["load/connections/1min"] == values["load/sockets/1min"] == "0.92"
    assert values["load/publish/received/1min"] == "0.00"


def test_uptime_and_running_replays(broker: MemoryBroker) -> None:
    broker.advance(2 * INTERVAL)
    slow = broker.client("slow")
    slow.network.blocked = True
    publisher = broker.client("p")
    for number in range(300):
        publisher.publish(f"t/{number}", bytes(1000), retain=True)
    slow.subscribe("t/#")
    values = present(broker)
    assert values["uptime"] == "30 seconds"
    assert values["holdfast/replays/running"] == "1"


def test_replays_that_wait_for_a_rate_or_in_their_sessions() -> None:
    flow = FlowSettings(4, 2, delivery_rate=Rate(2, 60), max_replays_per_client=1)
    broker = MemoryBroker(flow=flow, sys_msg_interval=INTERVAL)
    publisher = broker.client("p")
    for number in range(5):
        publisher.publish(f"t/{number}", retain=True)
    broker.client("c").send(p.Subscribe(1, tuple(p.SubscriptionRequest(name) for name in ("t/#", "t/+", "#"))))
    values = present(broker)
    assert [values[f"holdfast/replays/{name}"] for name in ("running", "throttled", "waiting")] == ["1", "1", "2"]


def test_retained_and_replayed_messages(broker: MemoryBroker) -> None:
    """Only accepted messages count. A refused one counts for its limit only."""
    client = broker.client("c", 5)
    client.publish("a", b"1", 1, True)
    client.publish("a", b"22", 1, True)
    client.publish("b", b"333", 1, True, Properties(message_expiry_interval=5))
    client.publish("c", b"x", 1, True)
    client.publish("c", b"", 1, True)
    client.publish("t" * 3000, b"x", 1, True)
    client.subscribe("#")
    client.subscribe("none/+")
    figures = present(broker)

    def told(name: str) -> list[str]:
        return [figures[f"holdfast/retained/{each}"] for each in name.split()]

    assert told("set clear expire bytes") == ["4", "1", "0", "204"]  # b has expired
    assert (figures["holdfast/replays/ended"], figures["holdfast/replays/messages"]) == ("2", "2")
    assert figures["holdfast/counters/retained_over_topic_length"] == "1"
    broker.advance(70)
    figures = present(broker)
    assert told("set clear expire bytes") == ["4", "1", "1", "204"]


def test_memory_is_measured_if_the_system_reports_it(tmp_path: Path) -> None:
    status = tmp_path / "status"
    assert resident_memory(status) == {}
    status.write_text("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
    assert resident_memory(status) == {"current": 1 << 20, "maximum": 1 << 21}
    status.write_text("Name:\tx\n")
    assert resident_memory(status) == {}


def test_the_page_for_operators_has_every_topic_and_every_counter(broker: MemoryBroker) -> None:
    """And no other, except those of the database and of a cluster, which this broker in memory has not."""
    rows = re.findall(r"^\| `([^`]+)`", PAGE.read_text(), re.MULTILINE)
    patterns = [re.sub("PERIOD|NAME", "[^/]+", re.escape(name)) for name in rows if name.startswith("$SYS/")]
    topics = [f"$SYS/broker/{name}" for name in present(broker)]
    assert [topic for topic in topics if not any(re.fullmatch(each, topic) for each in patterns)] == []
    unused = [each for each in patterns if not any(re.fullmatch(each, topic) for topic in topics)]
    assert [each for each in unused if "/storage/" not in each and "/cluster/" not in each] == []
    counters = {topic.rpartition("/")[2] for topic in topics if "/counters/" in topic}
    assert {name for name in rows if not name.startswith("$SYS/")} == counters


# --- times and subscribers


def test_only_changed_values_are_sent_at_each_interval(broker: MemoryBroker) -> None:
    client = broker.client("c")
    client.subscribe("$SYS/broker/uptime", "$SYS/broker/version", "$SYS/broker/publish/messages/+")
    broker.advance(INTERVAL - 1)
    assert client.messages() == []
    broker.advance(1)
    assert client.messages() == [("$SYS/broker/uptime", b"10 seconds", 0, False)]
    broker.client("p").publish("t")
    broker.advance(INTERVAL)
    assert told(client.packets()) == {"uptime": "20 seconds", "publish/messages/received": "1"}


def test_a_member_publishes_figures_of_all_members(broker: MemoryBroker) -> None:
    """Below $SYS/cluster/, together with its own. If they cannot be had, the earlier ones stay, and its own go on."""
    answers: list[Deferred[Mapping[str, str]]] = []
    sys_topics = broker.session_parts.sys_topics

    def ask() -> Deferred[Mapping[str, str]]:
        answers.append(Deferred())
        return answers[-1]

    sys_topics.ask_members = ask
    client = broker.client("c")
    client.subscribe("$SYS/cluster/#", "$SYS/broker/uptime")
    broker.advance(INTERVAL)
    assert client.messages() == []
    answers[0].callback({"members": "2"})
    broker.settle()
    assert {(topic, payload) for topic, payload, *_ in client.messages()} == {
        ("$SYS/cluster/members", b"2"),
        ("$SYS/broker/uptime", b"10 seconds"),
    }
    broker.advance(INTERVAL)
    with logged() as events:
        answers[1].errback(StorageFailure(FailureKind.UNAVAILABLE, "away", "here"))
        broker.settle()
    assert len(events) == 1
    assert [topic for topic, *_ in client.messages()] == ["$SYS/broker/uptime"]
    assert told_of(client.subscribe("$SYS/cluster/members")) == [b"2"]


def told_of(packets: list[p.Packet]) -> list[bytes]:
    """Return the payloads among the packets."""
    return [packet.payload for packet in packets if isinstance(packet, p.Publish)]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_new_subscription_gets_the_present_values_after_its_suback(broker: MemoryBroker, version: int) -> None:
    """With RETAIN 1, like retained messages, and with its Subscription Identifier."""
    client = broker.client("c", version)
    first, *values = client.subscribe("$SYS/broker/clients/+", qos=2, identifier=7 if version == 5 else None)
    assert isinstance(first, p.Suback)
    assert first.reason_codes == (2,)
    assert len(told(values)) == 7
    for packet in values:
        assert isinstance(packet, p.Publish)
        assert packet.retain
        assert packet.properties.subscription_identifiers == ((7,) if version == 5 else ())


def test_retain_handling(broker: MemoryBroker) -> None:
    """0: at every SUBSCRIBE, 1: when it is new, 2: never; not for shared subscriptions [MQTT5-3.3.1-9..11]."""
    topic = "$SYS/broker/version"
    client = broker.client("c", 5)
    assert told(client.subscribe(p.SubscriptionRequest(topic, 0, retain_handling=2))) == {}
    assert told(client.subscribe(p.SubscriptionRequest(topic, 0, retain_handling=1))) == {}
    assert set(told(client.subscribe(p.SubscriptionRequest(topic, 0, retain_handling=0)))) == {"version"}
    other = broker.client("o", 5)
    assert set(told(other.subscribe(p.SubscriptionRequest(topic, 0, retain_handling=1)))) == {"version"}
    assert told(other.subscribe("$share/g/$SYS/broker/version")) == {}


def test_shared_subscribers_take_turns(broker: MemoryBroker) -> None:
    clients = [broker.client(name, 5) for name in "ab"]
    for client in clients:
        client.subscribe("$share/g/$SYS/broker/uptime")
    for _ in range(2):
        broker.advance(INTERVAL)
    assert [len(told(client.packets())) for client in clients] == [1, 1]


def test_retain_as_published(broker: MemoryBroker) -> None:
    """The values are published with RETAIN 1."""
    client = broker.client("c", 5)
    client.subscribe(p.SubscriptionRequest("$SYS/broker/uptime", 0, retain_as_published=True))
    broker.advance(INTERVAL)
    assert client.messages() == [("$SYS/broker/uptime", b"10 seconds", 0, True)]


def test_wildcards_in_the_first_level_do_not_match(broker: MemoryBroker) -> None:
    """[MQTT5-4.7.2-1]."""
    client = broker.client("c")
    assert len(client.subscribe("#", "+/#", "+/broker/uptime")) == 1
    broker.advance(INTERVAL)
    assert client.messages() == []


def test_no_value_is_queued_for_an_offline_session() -> None:
    broker = MemoryBroker(limits=Limits(mqueue_store_qos0=True), sys_msg_interval=INTERVAL)
    properties = Properties(session_expiry_interval=1000)
    client = broker.client("c", 5, properties=properties)
    client.subscribe("$SYS/#")
    client.drop()
    broker.advance(5 * INTERVAL)
    assert broker.retained.totals.refreshed().count == 0
    client = broker.client("c", 5, clean=False, properties=properties)
    assert client.backlog == []
    broker.advance(INTERVAL)
    assert told(client.packets())["uptime"] == "60 seconds"


@pytest.mark.parametrize("stopped", [False, True])
def test_no_value_is_sent_while_disabled_or_stopped(stopped: bool) -> None:
    broker = MemoryBroker(sys_msg_interval=INTERVAL if stopped else 0)
    if stopped:
        broker.sys_topics.stopService()
    client = broker.client("c")
    client.subscribe("$SYS/#")
    client.messages()
    broker.advance(5 * INTERVAL)
    assert client.messages() == []
    if not stopped:
        assert len(client.subscribe("$SYS/#")) == 1


def test_a_client_that_does_not_read_them_is_shut_down() -> None:
    broker = MemoryBroker(limits=Limits(max_buffered_bytes=5000), sys_msg_interval=INTERVAL)
    client = broker.client("c")
    client.subscribe("$SYS/broker/uptime")
    client.network.blocked = True
    for _ in range(200):
        broker.advance(INTERVAL)
    assert client.network.closed
    assert broker.counters.connections_shut_down == 1


def test_the_maximum_packet_size_is_kept(broker: MemoryBroker) -> None:
    """[MQTT5-3.1.2-24]."""
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=40))
    values = told(client.subscribe("$SYS/#"))
    assert "uptime" in values
    assert "holdfast/counters/messages_dropped_queue_full" not in values


# --- counted apart


def test_subscriptions_to_the_counters_do_not_change_them(broker: MemoryBroker) -> None:
    watcher = broker.client("w")
    watcher.subscribe("$SYS/#")
    broker.advance(INTERVAL)
    watcher.packets()
    sent = broker.counters.bytes_sent
    broker.advance(INTERVAL)
    values = told(watcher.packets())
    assert {name for name in values if name.startswith("publish/")} == set()
    assert {name for name in values if name.startswith("messages/")} == set()
    assert "bytes/sent" in values  # the bytes do leave
    assert broker.counters.bytes_sent > sent
    assert (broker.counters.messages_sent, broker.counters.packets_sent) == (0, 2)
    assert broker.counters.message_bytes_sent == 0


# --- clients do not publish there


@pytest.mark.parametrize("topic", ["$SYS", "$SYS/", "$SYS/broker/uptime"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_clients_may_not_publish_there(broker: MemoryBroker, topic: str, qos: int, version: int) -> None:
    """MQTT 5: Not authorized (0x87). MQTT 3 has only the acknowledgement. The message is dropped and counted."""
    watcher = broker.client("w")
    watcher.subscribe("$SYS/#", "$SYS")
    watcher.packets()
    client = broker.client("c", version, properties=Properties(request_problem_information=0))
    client.publish(topic, b"x", qos=qos, retain=True, identifier=1)
    code = ReasonCode.NOT_AUTHORIZED if version == 5 else ReasonCode.SUCCESS
    expected: list[list[p.Packet]] = [[], [p.Puback(1, code)], [p.Pubrec(1, code)]]
    assert client.packets() == expected[qos]
    assert watcher.messages() == []
    assert broker.retained.totals.refreshed().count == 0
    assert broker.counters.messages_dropped_not_authorized == 1


def test_clients_may_use_other_topics_with_a_dollar() -> None:
    broker = MemoryBroker(sys_msg_interval=INTERVAL)
    client = broker.client("c")
    client.subscribe("$SYSTEM/#", "$other")
    client.publish("$SYSTEM/x")
    client.publish("$other")
    assert [topic for topic, *_ in client.messages()] == ["$SYSTEM/x", "$other"]


def test_clients_may_not_publish_there_by_topic_alias(broker: MemoryBroker) -> None:
    client = broker.client("c", 5)
    alias = Properties(topic_alias=1)
    client.publish("$SYS/x", qos=1, properties=alias, identifier=1)
    client.publish("", qos=1, properties=alias, identifier=2)
    assert [packet.reason_code for packet in client.got(p.Puback)] == [ReasonCode.NOT_AUTHORIZED] * 2


@pytest.mark.parametrize("version", [4, 5])
def test_no_will_may_go_there(broker: MemoryBroker, version: int) -> None:
    """CONNACK says not authorized: 0x87, or return code 5."""
    client = broker.client("c", version, will=p.Will("$SYS/x", b"gone", 0, False))
    assert client.connack is not None
    code = ReasonCode.NOT_AUTHORIZED if version == 5 else ConnectReturnCode.NOT_AUTHORIZED
    assert client.connack.reason_code == code
    assert client.network.closed


# --- authorization


@implementer(IAuthorizer)
class Partial(Filtering):
    """Lets no client subscribe to bytes, and denies loads. Answers at once, later, or with an error."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.later: list[tuple[Deferred[bool], bool]] = []

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant:
        return Grant.REFUSED if "bytes" in topic_filter else Grant.FILTERED

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        allowed = "/load/" not in message.topic
        if self.mode == "now":
            return allowed
        answer: Deferred[bool] = Deferred()
        self.later.append((answer, allowed))
        return answer

    def answer(self) -> None:
        later, self.later = self.later, []
        for deferred, allowed in later:
            if self.mode == "error":
                deferred.errback(RuntimeError("backend away"))
            else:
                deferred.callback(allowed)


@pytest.mark.parametrize("mode", ["now", "later", "error"])
def test_the_authorizer_decides(mode: str) -> None:
    authorizer = Partial(mode)
    broker = MemoryBroker(authorizer=authorizer, sys_msg_interval=INTERVAL)
    client = broker.client("c", 5)
    (refused,) = client.subscribe("$SYS/broker/bytes/#")
    assert isinstance(refused, p.Suback)
    assert refused.reason_codes == (ReasonCode.NOT_AUTHORIZED,)
    values = told(client.subscribe("$SYS/broker/uptime", "$SYS/broker/load/#"))
    authorizer.answer()
    broker.settle()
    values |= told(client.packets())
    assert set(values) == (set() if mode == "error" else {"uptime"})
    broker.advance(INTERVAL)
    authorizer.answer()
    broker.settle()
    assert set(told(client.packets())) == (set() if mode == "error" else {"uptime"})
    assert broker.counters.messages_dropped_not_authorized == 0


# --- failures


def test_a_figure_that_fails_keeps_no_other_from_being_published(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    """Neither in this run nor in later ones; the failure is logged once, and its end once."""
    observer = broker.client("observer")
    observer.subscribe("$SYS/#")
    broker.advance(INTERVAL)
    observer.packets()
    fails = True

    def memory() -> dict[str, int]:
        if fails:
            raise OSError(24, "Too many open files")
        return {"current": 17}

    monkeypatch.setattr("holdfast.sessions.sys_topics.resident_memory", memory)
    with logged(LastingFailure) as events:
        for _ in range(3):
            broker.advance(INTERVAL)
            values = told(observer.packets())
            assert "uptime" in values
            assert "heap/current" not in values
        fails = False
        broker.advance(INTERVAL)
        assert told(observer.packets())["heap/current"] == "17"
    assert [formatEvent(event) for event in events] == [
        "measuring the figures of memory failed, so their topics below $SYS keep older values",
        "measuring the figures of memory works again, after 3 failures",
    ]
    logged_failures.clear()


def test_publishing_goes_on_after_a_failed_run(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    observer = broker.client("observer")
    observer.subscribe("$SYS/broker/uptime")
    with monkeypatch.context() as patched:
        patched.setattr(broker.router, "online", fails)
        broker.advance(INTERVAL)
    assert [event["log_failure"].type for event in logged_failures] == [OSError]
    logged_failures.clear()
    observer.packets()
    broker.advance(INTERVAL)
    assert "uptime" in told(observer.packets())


def fails(_topic: str) -> None:
    raise OSError(24, "Too many open files")


# --- costs


def test_what_sessions_hold_is_counted_as_it_changes() -> None:
    """Nobody walks through all Sessions: the counts are those of a walk at any time, also after ends of Sessions."""
    broker = MemoryBroker(limits=Limits(max_mqueue_len=5))
    stays = Properties(session_expiry_interval=100)
    publisher = broker.client("p")
    for name in ("a", "b", "c", "d"):
        client = broker.client(name, 5, properties=stays)
        client.subscribe("t/#", "u", "$share/g/s", qos=1)
        client.subscribe("u", qos=1)
        client.send(p.Unsubscribe(9, ("u",)) if name == "a" else p.Pingreq())
        client.drop()
    for number in range(8):  # more than the queue takes
        publisher.publish(f"t/{number}", b"x", qos=1)
        publisher.publish("s", b"y", qos=1)
    broker.client("b", 5, clean=True)
    broker.client("c", 5, clean=False, properties=stays).messages()
    for _ in range(2):
        sessions = list(broker.registry)
        present = broker.counters.holdings
        assert present.subscriptions == sum(len(session.subscriptions) for session in sessions)
        assert present.shared_subscriptions == sum(len(session.groups) for session in sessions)
        assert present.queued_messages == sum(len(session.queue) for session in sessions)
        assert present.queued_bytes == sum(session.queue.bytes for session in sessions)
        broker.advance(200)  # the Sessions of those that are away expire


def test_values_are_sent_to_many_in_portions() -> None:
    broker = MemoryBroker(sys_msg_interval=INTERVAL)
    watchers = [broker.client(f"w{number}") for number in range(30)]
    for watcher in watchers:
        watcher.subscribe("$SYS/#")
    broker.advance(INTERVAL)
    for watcher in watchers:
        watcher.publish("t", b"changes some figures")
        watcher.packets()
    broker.clock.rightNow += INTERVAL
    turns = []
    for _ in range(50):
        broker.clock.turn()
        turns.append(sum(len(told(watcher.packets())) for watcher in watchers))
    assert max(turns) <= 20 * STEPS_IN_PART < sum(turns)
