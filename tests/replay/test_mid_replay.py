"""Events while a replay is under way, in each state: no message is lost, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.units import Rate
from holdfast.replay.interfaces import ReplayState
from holdfast.retained.limits import FlowSettings
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

TOPICS = [f"t/{number}" for number in range(10)]
VERSIONS = pytest.mark.parametrize("version", [4, 5])

#: settings that hold the replay up, by its state
HELD_UP: dict[ReplayState, dict[str, Any]] = {
    ReplayState.RESTING: {"flow": FlowSettings(4, 2), "limits": Limits(max_inflight=2)},
    ReplayState.THROTTLED: {"flow": FlowSettings(4, 2, delivery_rate=Rate(2, 1), client_rate=Rate(3, 1))},
}
STATES = pytest.mark.parametrize("state", list(HELD_UP))


class Scene:
    """A broker with retained messages, and a client with a replay that is delayed in a given state."""

    def __init__(self, broker: MemoryBroker, state: ReplayState, version: int, clean: bool = False) -> None:
        self.broker = broker
        self.state = state
        self.version = version
        self.clean = clean
        filler = broker.client("filler")
        for topic in TOPICS:
            filler.publish(topic, b"x", qos=1, retain=True)
        self.client = self.connect()
        self.seen: list[str] = []
        self.take(self.client.subscribe("t/#", qos=1))
        assert self.status_of_client() is state
        assert self.seen == TOPICS[:2]

    def connect(self) -> Client:
        expiry = Properties() if self.version == 4 or self.clean else Properties(session_expiry_interval=1000)
        return self.broker.client("c", self.version, clean=self.clean, properties=expiry)

    def status_of_client(self) -> ReplayState | None:
        states = [status.state for status in self.broker.replays.statuses() if status.client_id == "c"]
        assert len(states) <= 1
        return states[0] if states else None

    def reconnect(self) -> None:
        self.client = self.connect()
        self.take(self.client.backlog)

    def take(self, packets: list[p.Packet]) -> None:
        """Note the messages that came, without answering them."""
        self.unanswered = [packet for packet in packets if isinstance(packet, p.Publish)]
        self.seen += [packet.topic for packet in self.unanswered if not packet.dup]

    def release(self) -> list[str]:
        """Let the replay end. Return the topics of all messages, without repeats marked DUP."""
        self.client.send(*(p.Puback(packet.packet_identifier) for packet in self.unanswered))
        self.unanswered = []
        for _ in range(30):
            self.seen += [topic for topic, _, _, _ in self.client.messages()]
            self.broker.advance(1)
        self.seen += [topic for topic, _, _, _ in self.client.messages()]
        return self.seen

    def is_clear(self) -> bool:
        """Tell whether nothing is left of any replay, now and once all tokens are back."""
        replays = self.broker.replays
        gone = (len(self.broker.retained.feed), replays.flow.waiting, replays.running) == (0, 0, {})
        self.broker.advance(60)
        return gone and not replays.flow._clients


@pytest.fixture
def scene() -> Callable[..., Scene]:
    def build(state: ReplayState, version: int, clean: bool = False) -> Scene:
        options = HELD_UP[state]
        return Scene(MemoryBroker(**options), state, version, clean)

    return build


@STATES
@VERSIONS
def test_a_delayed_replay_ends_complete(scene: Callable[..., Scene], state: ReplayState, version: int) -> None:
    """Each message once, in topic order."""
    here = scene(state, version)
    assert here.release() == TOPICS
    assert here.is_clear()


@STATES
@VERSIONS
def test_resubscribing_with_retain_handling_0_begins_again(
    scene: Callable[..., Scene], state: ReplayState, version: int
) -> None:
    """Every re-SUBSCRIBE of MQTT 3.1.1 does so, too [MQTT-3.8.4-3]. There is still one replay, not two."""
    here = scene(state, version)
    came = len(here.seen)
    here.client.send(p.Subscribe(9, (p.SubscriptionRequest("t/#", 1),)))
    assert here.release()[came:] == TOPICS
    assert here.is_clear()


@STATES
@pytest.mark.parametrize("handling", [1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_resubscribing_with_retain_handling_1_or_2_lets_the_replay_go_on(
    scene: Callable[..., Scene], state: ReplayState, handling: int, qos: int
) -> None:
    """It keeps its place, and uses the new options."""
    here = scene(state, 5)
    before = here.broker.replays.statuses()
    here.client.send(p.Subscribe(9, (p.SubscriptionRequest("t/#", qos, retain_handling=handling),)))
    assert [status.number for status in here.broker.replays.statuses()] == [status.number for status in before]
    assert here.release() == TOPICS
    assert here.is_clear()


@STATES
def test_new_options_take_effect_in_mid_replay(scene: Callable[..., Scene], state: ReplayState) -> None:
    """Later messages have the Subscription Identifier. No Local leaves out the client's own messages."""
    here = scene(state, 5)
    here.client.publish("t/own", b"x", qos=1, retain=True)
    came = len(here.seen)
    request = p.SubscriptionRequest("t/#", 0, no_local=True, retain_handling=2)
    here.client.send(p.Subscribe(9, (request,), Properties(subscription_identifiers=(7,))))
    live = [packet for packet in here.client.got(p.Publish) if not packet.retain]
    here.client.send(*(p.Puback(packet.packet_identifier) for packet in [*live, *here.unanswered]))
    here.unanswered = []
    rest: list[p.Publish] = here.client.got(p.Publish)
    for _ in range(30):
        here.broker.advance(1)
        rest += here.client.got(p.Publish)
    retained = [packet for packet in rest if packet.retain]
    assert [packet.topic for packet in retained] == TOPICS[came:]
    assert {(packet.qos, packet.properties.subscription_identifiers) for packet in retained} == {(0, (7,))}
    assert here.is_clear()


@STATES
@VERSIONS
def test_unsubscribing_ends_the_replay_at_once(scene: Callable[..., Scene], state: ReplayState, version: int) -> None:
    """No more messages come, and the next replay has its turn."""
    here = scene(state, version)
    came = list(here.seen)
    here.client.send(p.Unsubscribe(9, ("t/#",)))
    assert here.status_of_client() is None
    assert here.release() == came
    assert here.is_clear()


@STATES
@VERSIONS
@pytest.mark.parametrize("goodbye", [True, False])
def test_a_clean_session_ends_its_replay(
    scene: Callable[..., Scene], state: ReplayState, version: int, goodbye: bool
) -> None:
    here = scene(state, version, clean=True)
    if goodbye:
        here.client.send(p.Disconnect())
    else:
        here.client.drop()
    assert here.status_of_client() is None
    assert here.is_clear()
    here.reconnect()
    assert here.client.messages() == []


@STATES
@VERSIONS
@pytest.mark.parametrize("taken_over", [True, False])
def test_a_persistent_session_resumes_its_replay(
    scene: Callable[..., Scene], state: ReplayState, version: int, taken_over: bool
) -> None:
    """After a disconnect, and after a takeover: each message once, except those in flight."""
    here = scene(state, version)
    old = here.client
    if not taken_over:
        old.drop()
        assert here.status_of_client() is None
    here.reconnect()
    assert old.network.closed
    assert here.release() == TOPICS
    assert here.is_clear()


@STATES
@VERSIONS
def test_a_clean_start_ends_the_replay(scene: Callable[..., Scene], state: ReplayState, version: int) -> None:
    """Its Session is gone [MQTT5-3.1.2-4]."""
    here = scene(state, version)
    here.clean = True
    here.reconnect()
    assert here.status_of_client() is None
    came = list(here.seen)
    assert here.release() == came
    assert here.is_clear()


@STATES
@VERSIONS
@pytest.mark.parametrize("killed", [True, False])
def test_a_replay_resumes_after_a_restart(tmp_path: Path, state: ReplayState, version: int, killed: bool) -> None:
    """From the last acknowledged message. Messages sent and not acknowledged may come again."""
    options = HELD_UP[state]
    broker = RestartableBroker(fresh_file(tmp_path), **options)
    here = Scene(broker, state, version)
    acknowledged = here.unanswered[:1]
    here.client.send(*(p.Puback(packet.packet_identifier) for packet in acknowledged))
    broker.advance(2)  # positions are stored once a second
    here.broker = broker.restart() if killed else broker.stop()
    here.seen = []
    here.reconnect()
    assert here.release() == TOPICS[len(acknowledged) :]
    assert here.is_clear()


@STATES
@VERSIONS
def test_a_cancelled_replay_ends_its_connection_with_a_reason(
    scene: Callable[..., Scene], state: ReplayState, version: int
) -> None:
    """The client cannot take the messages so far for all. A persistent Session resumes the replay."""
    here = scene(state, version)
    (number,) = [status.number for status in here.broker.replays.statuses() if status.client_id == "c"]
    assert here.broker.replays.cancel(number)
    assert here.client.network.closed
    said = here.client.got(p.Disconnect)
    assert [packet.reason_code for packet in said] == [ReasonCode.ADMINISTRATIVE_ACTION] * (version == 5)
    assert here.status_of_client() is None
    assert not here.broker.replays.cancel(number)
    here.reconnect()
    assert here.release() == TOPICS
    assert here.is_clear()
