"""Real clients of different makes, in every protocol version each of them speaks, on real sockets."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.makes import makes, needs_mosquitto
from tests.e2e.makes.face import Message, Options, RealClient
from tests.e2e.makes.paho_client import PahoRealClient
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Connect = Callable[..., RealClient]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all makes. Its log must have no complaints in the end."""
    broker = BrokerProcess(tmp_path_factory.mktemp("clients")).start()
    yield broker
    status, errors = broker.stop()
    assert (status, errors) == (0, "")
    assert "Traceback" not in "\n".join(broker.lines)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic level that no other test uses."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def connect(broker: BrokerProcess, make: type[RealClient], version: int, topic: str) -> Iterator[Connect]:
    """Connect clients of the make, subscribed to Topic Filters below this test's topic level."""
    clients: list[RealClient] = []

    def connected(*topic_filters: str, client_id: str = "", **options: object) -> RealClient:
        client_id = f"{topic}-{client_id or len(clients)}"
        client = make(Options(broker.port, version, client_id, topic_filters, **options))  # type: ignore[arg-type]
        clients.append(client)
        return client

    yield connected
    for client in clients:
        client.close()


@makes(3, 4, 5)
def test_every_qos_both_ways(connect: Connect, topic: str) -> None:
    """Messages with QoS 0, 1 and 2 arrive with that QoS, or with the lower one of the Subscription."""
    subscribers = [connect(f"{topic}/#", qos=qos) for qos in (0, 1, 2)]
    publisher = connect()
    for number in range(3):
        for qos in (0, 1, 2):
            publisher.publish(Message(f"{topic}/{qos}", b"%d" % number, qos))
    for granted, subscriber in enumerate(subscribers):
        came = [subscriber.receive() for _ in range(9)]
        for qos in (0, 1, 2):  # in order for each topic and QoS
            expected = [Message(f"{topic}/{qos}", b"%d" % number, min(qos, granted)) for number in range(3)]
            assert [message for message in came if message.topic == f"{topic}/{qos}"] == expected


@makes(3, 4, 5)
def test_a_will_is_published_when_the_connection_ends_without_disconnect(connect: Connect, topic: str) -> None:
    """It has its QoS and RETAIN 1. After DISCONNECT it is published only if DISCONNECT asks for it."""
    watcher = connect(f"{topic}/#")
    will = Message(f"{topic}/dropped", b"gone", 1, True)
    leaver = connect(will=Message(f"{topic}/closed", b"gone", 2))
    leaver.close()
    connect(will=will).drop()
    if leaver.asks_for_its_will:
        assert watcher.receive() == Message(f"{topic}/closed", b"gone", 2)
    assert watcher.receive() == Message(will.topic, b"gone", 1)
    assert connect(f"{topic}/#").receive() == will


@makes(3, 4, 5)
def test_a_resumed_session_gets_its_missed_messages(connect: Connect, topic: str) -> None:
    """A Client that does not subscribe again gets each missed message once, in order, with QoS 1 and with QoS 2.

    It relies only on the standards [MQTT5-7.0.0-2], [MQTT311-7.0.0-2].
    """
    connect(f"{topic}/#", client_id="keeper", persistent=True).drop()
    publisher = connect()
    missed = [Message(f"{topic}/{qos}", b"%d" % number, qos) for qos in (1, 2) for number in range(5)]
    for message in missed:
        publisher.publish(message)
    keeper = connect(client_id="keeper", persistent=True)
    last = Message(f"{topic}/3", b"that is all", 2)
    publisher.publish(last)
    came = [keeper.receive() for _ in range(11)]
    assert [message for message in came if message.qos == 1] == missed[:5]
    assert [message for message in came if message.qos == 2] == [*missed[5:], last]
    keeper.close()
    publisher.publish(last)
    assert connect(client_id="keeper", persistent=True).receive() == last


@makes(3, 4, 5)
def test_a_shared_subscription_is_fair(connect: Connect, topic: str) -> None:
    """Two members get half of the messages each, none twice, in every version."""
    members = [connect(f"$share/group/{topic}/#", f"own/{topic}") for _ in range(2)]
    publisher = connect()
    sent = [Message(f"{topic}/work", b"%d" % number, number % 2 + 1) for number in range(20)]
    for message in sent:
        publisher.publish(message)
    publisher.publish(Message(f"own/{topic}", b"that is all", 2))
    came = []
    for member in members:
        mine = [member.receive() for _ in range(11)]
        assert mine.pop() == Message(f"own/{topic}", b"that is all", 2)
        came += mine
    assert sorted(came) == sorted(sent)


@makes(3, 4, 5)
def test_retained_messages_are_replayed(connect: Connect, topic: str) -> None:
    """A new Subscription gets them with RETAIN 1. Live messages have RETAIN 0. Cleared messages are gone."""
    publisher = connect(f"{topic}/#")
    kept = [Message(f"{topic}/{qos}", b"kept %d" % qos, qos, True) for qos in (0, 1, 2)]
    cleared = [Message(f"{topic}/gone", b"x", 1, True), Message(f"{topic}/gone", b"", 1, True)]
    for message in (*kept, *cleared):
        publisher.publish(message)
    live = sorted(publisher.receive() for _ in range(5))
    assert live == sorted(Message(one.topic, one.payload, one.qos) for one in (*kept, *cleared))
    subscriber = connect(f"{topic}/#")
    assert sorted(subscriber.receive() for _ in range(3)) == kept
    publisher.publish(Message(f"{topic}/0", b"live", 1, True))
    assert subscriber.receive() == Message(f"{topic}/0", b"live", 1)


@makes(5)
def test_user_properties_keep_their_order(connect: Connect, topic: str) -> None:
    """Names and values arrive unchanged and in order, even if a name is repeated, live and retained."""
    pairs = (("zone", "1"), ("area", "2"), ("area", "0"), ("Ärea", "ß"), ("m", "x"))
    message = Message(f"{topic}/t", b"x", 1, True, pairs)
    subscriber = connect(f"{topic}/#")
    subscriber.publish(message)
    assert subscriber.receive() == Message(f"{topic}/t", b"x", 1, False, pairs)
    assert connect(f"{topic}/#").receive() == message


@makes(5)
def test_a_request_is_answered(connect: Connect, topic: str) -> None:
    """The responder answers to the Response Topic with the Correlation Data. Both arrive unchanged."""
    responder = connect(f"{topic}/request")
    requester = connect(f"{topic}/answers/+")
    for number in range(3):
        correlation_data = b"id-%d" % number
        requester.publish(
            Message(
                f"{topic}/request",
                b"%d" % number,
                1,
                response_topic=f"{topic}/answers/1",
                correlation_data=correlation_data,
            )
        )
        request = responder.receive()
        responder.publish(
            Message(request.response_topic, request.payload * 2, 1, correlation_data=request.correlation_data)
        )
        expected = Message(f"{topic}/answers/1", b"%d" % number * 2, 1, correlation_data=correlation_data)
        assert requester.receive() == expected


@needs_mosquitto
def test_mosquitto_rr_gets_its_answer(broker: BrokerProcess) -> None:
    """A responder of another make answers the request of mosquitto_rr by its properties alone."""
    responder = PahoRealClient(Options(broker.port, 5, "responder", ("rr/request",)))
    command = ["mosquitto_rr", "-h", "127.0.0.1", "-p", str(broker.port), "-V", "mqttv5", "-q", "1", "-W", "30"]
    command += ["-t", "rr/request", "-e", "rr/answer", "-D", "publish", "correlation-data", "42"]
    command += ["-m", "how are you", "-F", "%D %p"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as requester:
        request = responder.receive()
        assert request == Message("rr/request", b"how are you", 1, response_topic="rr/answer", correlation_data=b"42")
        answer = Message(request.response_topic, b"well", 1, correlation_data=request.correlation_data)
        responder.publish(answer)
        came, _ = requester.communicate(timeout=PATIENCE)
    assert came == "42 well\n"
    assert requester.returncode == 0
    responder.close()
