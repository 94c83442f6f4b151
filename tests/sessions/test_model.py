"""Sessions, messages, retained messages and Wills, compared with a model while the broker is killed and restarted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ParamSpec

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.sessions.peers import NEVER, Way
from tests.sessions.side_by_side import SideBySide
from tests.sessions.state import FILTERS, GRACE, LONGEST
from tests.sessions.witness import Witness

P = ParamSpec("P")

#: A run of 50 steps takes a third of a second.
_EXAMPLES = settings().max_examples

NAMES = st.sampled_from("abc")
VERSIONS = st.sampled_from([4, 5])
QOS = st.sampled_from([1, 2, 2, 0])
SECONDS = st.sampled_from([1, 5, 5, 30, GRACE + 1])
HOW = st.sampled_from(["kill", "kill when stored", "stop"])
LIFETIMES = st.sampled_from([None, None, 3, 40])
WILLS = st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from([0, 5, 70, 200]), LIFETIMES)


def one_of(which: str) -> st.SearchStrategy[Any]:
    """Choose one of the machine's Clients that are "connected", "established" or "asked"."""
    return st.runner().flatmap(lambda machine: st.sampled_from(getattr(machine, which)))


def some(which: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Run the rule only if such a Client exists."""
    return precondition(lambda machine: bool(getattr(machine, which)))


class Machine(RuleBasedStateMachine):
    """The possible actions of a broker and three Clients."""

    def __init__(self) -> None:
        super().__init__()
        self.both = SideBySide()
        self.peers = self.both.peers
        self.payloads = 0

    @property
    def connected(self) -> list[Witness]:
        """The Clients that have sent CONNECT."""
        return [peer for peer in self.peers.values() if peer.client is not None]

    @property
    def established(self) -> list[Witness]:
        """The Clients that have received CONNACK and still receive packets."""
        return [peer for peer in self.connected if peer.established and not peer.deaf]

    @property
    def asked(self) -> list[Witness]:
        """The Clients that have packets to answer or to repeat."""
        return [peer for peer in self.established if peer.resends or peer.answers]

    def payload(self) -> bytes:
        """Return a new payload."""
        self.payloads += 1
        return b"%d" % self.payloads

    def send(self, peer: Witness, packet: p.Packet) -> None:
        """Let a Client send a packet."""
        peer.send(packet)
        self.both.look()

    def at_work(self, name: str) -> Witness:
        """Return this Client, ready to send. It reconnects first if it must."""
        peer = self.peers[name]
        peer.deaf = False
        self.both.look(late=True)
        while not peer.established:
            if peer.client is None:
                self.connect(name, 5, False, 100, None, None)
            self.both.commit()
        if peer.resends:
            self.answer(peer, len(peer.resends))
        return peer

    # --- the Clients

    @initialize(
        ways=st.tuples(*3 * [st.tuples(VERSIONS, st.sampled_from([False, False, True]))]),
        filters=st.tuples(*3 * [st.lists(st.sampled_from(FILTERS[1:]), min_size=1, max_size=2, unique=True)]),
        eager=st.booleans(),
    )
    def begin(self, ways: tuple[tuple[int, bool], ...], filters: tuple[list[str], ...], eager: bool) -> None:
        """Begin with Sessions, mostly durable, and some subscriptions."""
        for peer, (version, clean), subscribed in zip(self.peers.values(), ways, filters, strict=True):
            self.connect(peer.name, version, clean, 0 if clean else NEVER, None, None)
            self.both.commit()
            for number, topic_filter in enumerate(subscribed, 1):
                self.subscribe(peer.name, topic_filter, 2, number)
        self.commit(eager)

    @rule(
        name=NAMES,
        version=VERSIONS,
        clean=st.sampled_from([False, False, False, True]),
        expiry=st.sampled_from([100, 100, 0, 10, NEVER]),
        receive_maximum=st.sampled_from([None, 1, 2]),
        will=st.none() | WILLS,
    )
    def connect(
        self,
        name: str,
        version: int,
        clean: bool,
        expiry: int,
        receive_maximum: int | None,
        will: tuple[int, bool, int, int | None] | None,
    ) -> None:
        """Connect. An existing connection is taken over."""
        peer = self.peers[name]
        testament = None
        if will is not None:
            qos, retain, delay, lifetime = will
            properties = NO_PROPERTIES
            if version == 5:
                properties = Properties(will_delay_interval=delay or None, message_expiry_interval=lifetime)
            testament = p.Will(f"w/{name}", self.payload(), qos, retain, properties)
        clean = clean or peer.must_be_clean
        way = Way(version, clean, expiry, receive_maximum if version == 5 else None, testament)
        peer.connect(self.both.broker, way)
        self.both.look()

    @some("connected")
    @rule(
        peer=one_of("connected"),
        how=st.sampled_from(["drop", "drop", "DISCONNECT", "DISCONNECT with Will"]),
        expiry=st.sampled_from([None, None, 0, 20, NEVER]),
    )
    def leave(self, peer: Witness, how: str, expiry: int | None) -> None:
        """Lose the connection, or send DISCONNECT; in MQTT 5 perhaps with another Session Expiry Interval."""
        if how == "drop" or not peer.established or peer.deaf:
            peer.drop()
        elif peer.way.version == 4:
            peer.disconnect(p.Disconnect())
        else:
            properties = Properties(session_expiry_interval=expiry if peer.way.expiry else None)
            peer.disconnect(p.Disconnect(0 if how == "DISCONNECT" else 4, properties))
        self.both.look()

    @some("connected")
    @rule(peer=one_of("connected"))
    def go_deaf_or_hear_again(self, peer: Witness) -> None:
        """Let this Client receive no packet from now on, or let it receive the packets under way again."""
        peer.deaf = not peer.deaf
        if not peer.deaf:
            self.both.look(late=True)

    @rule(
        name=NAMES,
        topic_filter=st.sampled_from(FILTERS),
        qos=st.sampled_from([1, 2, 2, 0, None]),
        identifier=st.sampled_from([None, 1, 2]),
    )
    def subscribe(self, name: str, topic_filter: str, qos: int | None, identifier: int | None) -> None:
        """Subscribe, perhaps once more; or unsubscribe."""
        peer = self.at_work(name)
        if qos is None:
            self.send(peer, p.Unsubscribe(peer.identifier(), (topic_filter,)))
            return
        properties = NO_PROPERTIES
        if peer.way.version == 5 and identifier is not None:
            properties = Properties(subscription_identifiers=(identifier,))
        self.send(peer, p.Subscribe(peer.identifier(), (p.SubscriptionRequest(topic_filter, qos),), properties))

    @rule(
        name=NAMES,
        messages=st.lists(st.tuples(st.sampled_from(["t/a", "t/b", "u", "v"]), QOS), min_size=1, max_size=4),
        retain=st.sampled_from([None, None, "set", "set", "set", "clear"]),
        lifetime=LIFETIMES,
    )
    def publish(self, name: str, messages: list[tuple[str, int]], retain: str | None, lifetime: int | None) -> None:
        """Publish, with RETAIN to set or to clear, or without."""
        peer = self.at_work(name)
        for topic, qos in messages:
            payload = self.payload()
            if retain == "clear":  # then the payload does not tell messages apart
                payload, qos, lifetime = b"", min(qos, 1), None
            properties = Properties(message_expiry_interval=lifetime) if peer.way.version == 5 else NO_PROPERTIES
            identifier = peer.identifier() if qos else 0
            self.send(peer, p.Publish(topic, payload, qos, retain is not None, False, identifier, properties))

    @some("established")
    @rule(topic=st.sampled_from(["t/a", "t/b", "u"]), qos=QOS)
    def everybody_publishes(self, topic: str, qos: int) -> None:
        """Let every connected Client publish a message."""
        for peer in self.established:
            if not peer.resends:
                identifier = peer.identifier() if qos else 0
                self.send(peer, p.Publish(topic, self.payload(), qos, packet_identifier=identifier))

    @some("asked")
    @rule(peer=one_of("asked"), count=st.integers(1, 4))
    def answer(self, peer: Witness, count: int) -> None:
        """Acknowledge, release and repeat messages, one packet after the other."""
        while count and peer in self.asked:
            self.send(peer, peer.next_answer())
            count -= 1

    @some("asked")
    @rule()
    def answer_in_turn(self) -> None:
        """Let every Client answer once."""
        for peer in self.asked:
            self.answer(peer, 1)

    @some("asked")
    @rule()
    def answer_everything(self) -> None:
        """Let all Clients answer until no answer is left, with a commit now and then."""
        while asked := self.asked:
            for peer in asked:
                self.answer(peer, 5)
            self.both.commit()

    # --- the broker

    @rule(always=st.sampled_from([None, None, False, True]))
    def commit(self, always: bool | None) -> None:
        """Commit everything; perhaps switch to a commit after every action, or back."""
        self.both.commit()
        if always is not None:
            self.both.eager = always

    @precondition(lambda self: self.both.broker.executor.waiting)
    @rule()
    def commit_what_is_handed_over(self) -> None:
        """Finish the commit under way, without later changes."""
        self.both.step()

    @rule(how=HOW, after=st.sampled_from([0, 0, 4, 80]), back=st.sampled_from([True, True, False]))
    def restart(self, how: str, after: int, back: bool) -> None:
        """Kill the broker, perhaps between a commit and its report, or stop it; then start another one."""
        was_here = [peer for peer in self.connected if back]
        if how == "stop":
            self.both.stop(after)
        else:
            self.both.kill(after, how == "kill when stored")
        for peer in was_here:
            self.connect(peer.name, peer.way.version, False, peer.way.expiry, None, None)

    @rule(restarts=st.lists(st.tuples(HOW, SECONDS), min_size=2, max_size=3))
    def restart_while_everybody_is_away(self, restarts: list[tuple[str, int]]) -> None:
        """Let time pass while the broker is down: Sessions end and Wills become due."""
        for how, seconds in restarts:
            self.restart(how, 4, False)
            self.advance(seconds)

    @rule(seconds=SECONDS)
    def advance(self, seconds: int) -> None:
        """Let time pass."""
        self.both.advance(seconds)

    @rule(topic_filter=st.sampled_from(FILTERS))
    def see_what_is_retained(self, topic_filter: str) -> None:
        """Check that a new subscriber gets the retained messages and no others."""
        found, expected = self.both.retained(topic_filter)
        assert found == expected

    # --- the end

    def teardown(self) -> None:
        """Let everything finish, unless the test has failed before."""
        if sys.exc_info()[0] is None:
            self.drain()
        self.both.close()

    def drain(self) -> None:
        """Let every Client come back and answer everything: then nothing is owed, and nothing stays behind."""
        for peer in self.peers.values():
            peer.deaf = False
        self.both.look(late=True)
        self.both.commit()
        self.answer_everything()
        for name in self.both.model.live.sessions.keys() - {peer.name for peer in self.connected}:
            self.at_work(name)
        self.both.commit()
        self.answer_everything()
        assert self.both.rows().keys() <= {"sessions", "session_subscriptions", "wills"}
        for peer in self.connected:
            self.leave(peer, "drop", None)
        self.both.advance(LONGEST)
        self.both.commit()
        assert self.both.rows() == {}
        assert self.both.broker.registry.session_count == 0
        assert self.both.broker.router.table._tree._root.is_empty()
        self.see_what_is_retained("#")


def test_the_broker_agrees_with_the_model() -> None:
    """No acknowledged message is lost and none comes twice, whenever the broker is killed."""
    run_state_machine_as_test(Machine, settings=settings(max_examples=_EXAMPLES // 2))


@pytest.mark.nightly
def test_the_broker_agrees_with_the_model_for_long() -> None:
    """The same with more runs."""
    run_state_machine_as_test(Machine, settings=settings(max_examples=_EXAMPLES * 4))
