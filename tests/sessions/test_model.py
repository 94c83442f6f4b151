"""Sessions, messages, retained messages and Wills against a model, however their broker is killed and restarted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from holdfast.retained.service import RetainerLimits
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.doubles import START
from tests.sessions.model import FILTERS, GRACE, LONGEST, TOPICS, Model
from tests.sessions.peers import NEVER, Peer, Way
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

LIMITS = Limits(session_expiry_interval=LONGEST, max_inflight=3, idle_timeout=1e6)
#: no sweep: it would be a commit of its own at times the model does not know
RETAINER = RetainerLimits(msg_clear_interval=0)
TABLES = ("sessions", "session_subscriptions", "session_messages", "session_deliveries", "session_received", "wills")

LIFETIMES = st.sampled_from([None, None, 3, 40])
P = ParamSpec("P")

NAMES = st.sampled_from("abc")
QOS = st.sampled_from([1, 2, 2, 0])
VERSIONS = st.sampled_from([4, 5])


def one_of(which: str) -> st.SearchStrategy[Any]:
    """Choose one of the machine's Clients for which this property is true."""
    return st.runner().flatmap(lambda machine: st.sampled_from(machine.peers_that(which)))


def some(which: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Run the rule only when there is such a Client."""
    return precondition(lambda machine: bool(machine.peers_that(which)))


class Broker(RuleBasedStateMachine):
    """A broker whose commits happen when the machine says so, and three Clients, next to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(prefix="holdfast-model-")
        path = fresh_file(Path(self.directory.name))
        self.broker = RestartableBroker(path, manual=True, limits=LIMITS, retainer=RETAINER)
        self.model = Model(START)
        self.peers = {name: Peer(name, self.model) for name in "abc"}
        self.payloads = 0
        self.eager = False

    def peers_that(self, which: str) -> list[Peer]:
        """Return the Clients that are "connected", "established" (have CONNACK), "asked" ...."""
        connected = [peer for peer in self.peers.values() if peer.client is not None]
        established = [peer for peer in connected if peer.established and not peer.deaf]
        match which:
            case "connected":
                return connected
            case "established":
                return established
            case "asked":
                return [peer for peer in established if peer.resends or peer.answers]
        raise ValueError(which)

    def payload(self) -> bytes:
        """Return a payload never used before."""
        self.payloads += 1
        return b"%d" % self.payloads

    def look(self, late: bool = False) -> None:
        """See what has come of an action, and take note of the commit it has begun."""
        self.collect(late)
        if self.broker.bridge.waiting:
            self.model.hand_over()
            if self.eager:
                self.commit()
        for peer in self.peers.values():
            if peer.established and peer.must_be_clean:
                peer.drop()
                self.look()

    def collect(self, late: bool = False) -> None:
        """Let every Client read what it was sent."""
        for peer in self.peers.values():
            established = peer.established and not peer.deaf
            peer.fleeting += [message.payload for client, message in self.model.fleeting if client == peer.name]
            peer.take(late)
            if established or not peer.deaf:
                assert not established or peer.fleeting == [], f"{peer.name} was not sent {peer.fleeting}"
                peer.fleeting.clear()
        self.model.fleeting.clear()

    # --- the clients

    @initialize(
        ways=st.tuples(*3 * [st.tuples(VERSIONS, st.sampled_from([False, False, True]))]),
        filters=st.tuples(*3 * [st.lists(st.sampled_from(FILTERS[1:]), min_size=1, max_size=2, unique=True)]),
        eager=st.booleans(),
    )
    def begin(self, ways: tuple[tuple[int, bool], ...], filters: tuple[list[str], ...], eager: bool) -> None:
        """Begin with Sessions, most of which last, and some subscriptions."""
        for peer, (version, clean), subscribed in zip(self.peers.values(), ways, filters, strict=True):
            self.connect(peer.name, version, clean, 0 if clean else NEVER, None, None)
            self.commit()
            for number, topic_filter in enumerate(subscribed, 1):
                self.subscribe(peer.name, topic_filter, 2, number)
        self.commit()
        self.eager = eager

    @rule(
        name=NAMES,
        version=VERSIONS,
        clean=st.sampled_from([False, False, False, True]),
        expiry=st.sampled_from([100, 100, 0, 10, NEVER]),
        receive_maximum=st.sampled_from([None, 1, 2]),
        will=st.none() | st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from([0, 5, 70, 200]), LIFETIMES),
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
        """Connect; a connection there is already is taken over."""
        peer = self.peers[name]
        testament = None
        if will is not None:
            qos, retain, delay, lifetime = will
            properties = NO_PROPERTIES
            if version == 5:
                properties = Properties(will_delay_interval=delay or None, message_expiry_interval=lifetime)
            testament = p.Will(f"w/{name}", self.payload(), qos, retain, properties)
        clean = clean or peer.must_be_clean
        peer.connect(self.broker, Way(version, clean, expiry, receive_maximum if version == 5 else None, testament))
        self.look()

    def at_work(self, name: str) -> Peer:
        """Return this Client, ready to send what it wants; if it must, it comes back first."""
        peer = self.peers[name]
        peer.deaf = False
        self.look(late=True)
        while not peer.established:
            if peer.client is None:
                self.connect(name, 5, False, 100, None, None)
            self.commit()
        if peer.resends:
            self.answer(peer, len(peer.resends))
        return peer

    @some("connected")
    @rule(
        peer=one_of("connected"),
        how=st.sampled_from(["drop", "drop", "DISCONNECT", "DISCONNECT with Will"]),
        expiry=st.sampled_from([None, None, 0, 20, NEVER]),
    )
    def leave(self, peer: Peer, how: str, expiry: int | None) -> None:
        """Lose the connection, or say goodbye; in MQTT 5 perhaps with another Session Expiry Interval."""
        if how == "drop" or not peer.established or peer.deaf:
            peer.drop()
        elif peer.way.version == 4:
            peer.disconnect(p.Disconnect())
        else:
            properties = Properties(session_expiry_interval=expiry if peer.way.expiry else None)
            peer.disconnect(p.Disconnect(0 if how == "DISCONNECT" else 4, properties))
        self.look()

    @some("connected")
    @rule(peer=one_of("connected"))
    def go_deaf_or_hear_again(self, peer: Peer) -> None:
        """From here on nothing comes through to this Client; or, if so, what was on its way does."""
        peer.deaf = not peer.deaf
        if not peer.deaf:
            self.look(late=True)

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
            peer.send(p.Unsubscribe(peer.identifier(), (topic_filter,)))
            self.look()
            return
        properties = NO_PROPERTIES
        if peer.way.version == 5 and identifier is not None:
            properties = Properties(subscription_identifiers=(identifier,))
        peer.send(p.Subscribe(peer.identifier(), (p.SubscriptionRequest(topic_filter, qos),), properties))
        self.look()

    @rule(
        name=NAMES,
        messages=st.lists(st.tuples(st.sampled_from(["t/a", "t/b", "u", "v"]), QOS), min_size=1, max_size=4),
        retain=st.sampled_from([None, None, "set", "set", "set", "clear"]),
        lifetime=LIFETIMES,
    )
    def publish(self, name: str, messages: list[tuple[str, int]], retain: str | None, lifetime: int | None) -> None:
        """Publish: to set or to clear what is retained, or neither."""
        peer = self.at_work(name)
        for topic, qos in messages:
            payload = self.payload()
            if retain == "clear":  # then the payload does not tell messages apart
                payload, qos, lifetime = b"", min(qos, 1), None
            properties = Properties(message_expiry_interval=lifetime) if peer.way.version == 5 else NO_PROPERTIES
            identifier = peer.identifier() if qos else 0
            peer.send(p.Publish(topic, payload, qos, retain is not None, False, identifier, properties))
            self.look()

    @some("established")
    @rule(topic=st.sampled_from(["t/a", "t/b", "u"]), qos=QOS)
    def everybody_publishes(self, topic: str, qos: int) -> None:
        """Every Client that may publishes a message."""
        for peer in self.peers_that("established"):
            if not peer.resends:
                peer.send(p.Publish(topic, self.payload(), qos, packet_identifier=peer.identifier() if qos else 0))
                self.look()

    @some("asked")
    @rule(peer=one_of("asked"), count=st.integers(1, 4))
    def answer(self, peer: Peer, count: int) -> None:
        """Acknowledge what has come, release what was acknowledged, send again what was not: one after the other."""
        while count and peer in self.peers_that("asked"):
            peer.answer()
            self.look()
            count -= 1

    @some("asked")
    @rule()
    def answer_in_turn(self) -> None:
        """Every Client answers once."""
        for peer in self.peers_that("asked"):
            self.answer(peer, 1)

    @some("asked")
    @rule()
    def answer_everything(self) -> None:
        """Everybody answers until nothing is left to answer, with a commit now and then."""
        while asked := self.peers_that("asked"):
            for peer in asked:
                self.answer(peer, 5)
            self.commit()

    # --- the broker

    @rule(always=st.sampled_from([None, None, False, True]))
    def commit(self, always: bool | None = None) -> None:
        """Commit everything; perhaps from here on after every action, or no more so."""
        self.broker.commit()
        self.model.committed()
        self.collect()
        self.model.committed()
        for peer in self.peers.values():
            peer.check_rest()
        self.eager = self.eager if always is None else always
        self.look()

    @precondition(lambda self: self.broker.bridge.waiting)
    @rule()
    def step(self) -> None:
        """Commit what has been handed over, and nothing that came since."""
        self.model.stored()
        self.broker.bridge.step()
        self.broker.settle()
        self.look()

    @rule(
        how=st.sampled_from(["kill", "kill when stored", "stop"]),
        after=st.sampled_from([0, 0, 4, 80]),
        back=st.sampled_from([True, True, False]),
    )
    def restart(self, how: str, after: int, back: bool) -> None:
        """Kill the broker, perhaps when a commit is on disk and nobody knows, or stop it; and start another one."""
        was_here = [peer for peer in self.peers_that("connected") if back]
        if how == "stop":
            self.model.stop()
            self.broker = self.broker.stop(after, manual=True)
        else:
            if how == "kill when stored" and self.broker.bridge.waiting:
                work, _ = self.broker.bridge.waiting[0]
                work()
                self.model.stored()
            self.broker = self.broker.restart(after, manual=True)
        for peer in self.peers.values():
            peer.gone()
        self.model.restart(round(self.broker.clock.seconds()))
        self.look()
        for peer in was_here:
            self.connect(peer.name, peer.way.version, False, peer.way.expiry, None, None)

    @rule(seconds=st.sampled_from([1, 5, 5, 30, GRACE + 1]))
    def advance(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self.model.advance(1)
            self.broker.advance(1)
            self.look()

    @rule(topic_filter=st.sampled_from(FILTERS))
    def see_what_is_retained(self, topic_filter: str) -> None:
        """A fresh subscriber is sent what is retained, and nothing else."""
        client = self.broker.client("fresh", 5)
        sent = client.subscribe(topic_filter)
        self.commit()
        sent += client.packets()
        came = {packet.topic: packet.payload for packet in sent if isinstance(packet, p.Publish) and packet.retain}
        client.drop()
        assert came == {
            topic: message.payload
            for topic, message in self.model.live.retained.items()
            if topic_filter in TOPICS[topic] and (message.expires_at or self.model.now + 1) > self.model.now
        }

    # --- the end

    def teardown(self) -> None:
        """Let everything come to its end, unless something has failed before."""
        if sys.exc_info()[0] is None:
            self.drain()
        self.broker.kill()
        self.directory.cleanup()

    def drain(self) -> None:
        """Every Client comes back and answers everything: nothing is owed then, and nothing left behind."""
        for peer in self.peers.values():
            peer.deaf = False
        self.look(late=True)
        self.commit()
        self.answer_everything()
        for name in self.model.live.sessions.keys() - {peer.name for peer in self.peers_that("connected")}:
            self.at_work(name)
        self.commit()
        self.answer_everything()
        left = {table: self.broker.rows(table) for table in TABLES}
        assert (left["session_messages"], left["session_deliveries"], left["session_received"]) == (0, 0, 0)
        for peer in self.peers_that("connected"):
            self.leave(peer, "drop", None)
        self.advance(LONGEST)
        self.commit()
        assert {table: self.broker.rows(table) for table in TABLES} == dict.fromkeys(TABLES, 0)
        assert self.broker.registry.session_count == 0
        assert self.broker.router._tree.is_empty()
        self.see_what_is_retained("#")


def test_the_broker_does_what_the_model_says() -> None:
    """Whatever Clients do, and whenever the broker is killed: nothing acknowledged is lost, nothing comes twice."""
    run_state_machine_as_test(Broker)
