"""Random clients of a whole broker under random rules, beside a naive model of what each of them may have.

The model knows the rules as a list (:mod:`tests.identity.rules.naive`), and asks about one topic after the other. After
each step it compares what every client has received, and what is retained, with what is allowed:

- a client has nothing that the rules deny it now, and nothing that its publisher was not allowed to publish
- what the rules allow has arrived
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import define, field
from zope.interface import implementer

from holdfast.config.sections.authorization import AuthorizationConfig
from holdfast.core.topics import matches, split_shared
from holdfast.identity.authorizer import Authorizer, SourceCheck
from holdfast.identity.interfaces import Credentials, IAuthenticator, Principal
from holdfast.identity.rule_files import read_rules
from holdfast.identity.rule_sources import sys_rules
from holdfast.identity.rules import EVERY_ACTION, Action, Conditions, Identity, Rule, RuleList, Ruleset
from holdfast.sessions.revocation import OnRevoke
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.identity.rules import naive
from tests.sessions.restartable import RestartableBroker

LEVELS = ["a", "b", "alice", "c1", "$SYS"]
TOPICS = [topic for topic in naive.topics(LEVELS, 3) if topic.count(naive.FRESH) < 2]
#: the topics that clients publish to
PUBLISHED = [topic for topic in TOPICS if topic.count("/") < 2]
#: each name is a level above, or none that a template can stand for: so the topics above are all that rules distinguish
GROUPS = {"c1": ["alice", "b"], "a": ["b", "a+b"]}
NAMES = [(None, "c1"), ("alice", "b"), ("b", "alice"), ("a+b", "c+"), ("alice", "$SYS"), (None, "a")]
ADMINISTRATION = AuthorizationConfig(administrators=("b",))


@implementer(IAuthenticator)
class Names:
    """Admits every client under its own name, as one that it has proven."""

    def authenticate(self, credentials: Credentials) -> Principal:
        return Principal(
            credentials.client_id, credentials.username, listener=credentials.listener, address=credentials.address
        )


def groups_of(username: str | None) -> frozenset[str]:
    return frozenset(group for group, users in GROUPS.items() if username in users)


def topic_filter(chance: random.Random, levels: list[str]) -> str:
    parts = [chance.choice([*levels, "+", "+"]) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.4:
        parts = [*parts[: chance.randint(0, 2)], "#"]
    return "/".join(parts)


def random_rules(chance: random.Random) -> list[dict[str, Any]]:
    """Return tables of rules, as the file has them."""
    tables = []
    for _ in range(chance.choice([0, 1, 3, 5, 8])):
        table: dict[str, Any] = {
            "action": chance.choice(
                ["all", ["publish"], ["publish", "retain"], ["clear", "retain"], ["subscribe"], ["receive"]]
            ),
            "topics": [topic_filter(chance, [*LEVELS, "%u", "%c", "%g"]) for _ in range(chance.randint(1, 2))],
            "allow": chance.random() < 0.7,
        }
        if chance.random() < 0.4:
            table["users"] = chance.sample(["alice", "b", "a+b", "$guest"], 2)
        if chance.random() < 0.2:
            table["groups"] = [chance.choice(["c1", "a"])]
        if chance.random() < 0.2:
            table["clients"] = chance.sample(["c1", "alice", "b"], 2)
        if chance.random() < 0.1:
            table["listeners"] = [chance.choice(["test", "other"])]
        tables.append(table)
    if chance.random() < 0.5:  # else few messages get through
        tables.append({"action": "all", "topics": ["#"], "allow": True})
    return tables


def text_of(tables: list[dict[str, Any]]) -> str:
    """Return the file with these rules."""
    lines = []
    for table in tables:
        lines += ["[[rule]]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    lines += ["[groups]", *(f"{group} = {json.dumps(users)}" for group, users in GROUPS.items())]
    return "\n".join(lines) + "\n"


def twins(tables: list[dict[str, Any]]) -> list[Rule]:
    """Return the rules for the naive twin."""

    def some(values: list[str] | None) -> frozenset[str] | None:
        return None if values is None else frozenset(values)

    return [
        Rule(
            table["allow"],
            EVERY_ACTION if table["action"] == "all" else frozenset(Action[each.upper()] for each in table["action"]),
            tuple(table["topics"]),
            "model",
            some(table.get("users")),
            some(table.get("groups")),
            Conditions(some(table.get("clients")), some(table.get("listeners"))),
        )
        for table in tables
    ] + list(sys_rules(ADMINISTRATION))


def is_shared(wanted: str) -> bool:
    return wanted.startswith("$share/")


class Model:
    """The rules, one after the other."""

    def __init__(self, tables: list[dict[str, Any]], partially: bool) -> None:
        self.rules = twins(tables)
        self.partially = partially
        self._known: dict[Any, bool] = {}

    def may(self, identity: Identity, action: Action, topic: str) -> bool:
        key = (identity, action, topic)
        if key not in self._known:
            default = action is Action.RECEIVE
            self._known[key] = naive.allows(self.rules, identity, action, topic, default)
        return self._known[key]

    def may_publish(self, identity: Identity, topic: str, retain: bool, payload: bytes) -> bool:
        if topic.startswith("$SYS"):
            return False
        beside = (Action.RETAIN if payload else Action.CLEAR) if retain else Action.PUBLISH
        return self.may(identity, Action.PUBLISH, topic) and self.may(identity, beside, topic)

    def may_receive(self, identity: Identity, topic: str) -> bool:
        return self.may(identity, Action.SUBSCRIBE, topic) and self.may(identity, Action.RECEIVE, topic)

    def may_keep(self, publisher: tuple[str | None, str], topic: str, strict: bool) -> bool:
        username, client_id = publisher
        if username is None and not strict:
            return True
        identity = Identity(username, client_id, groups_of(username), is_located=False)
        return self.may(identity, Action.PUBLISH, topic) and self.may(identity, Action.RETAIN, topic)

    def grants(self, identity: Identity, wanted: str) -> bool:
        answers = [self.may(identity, Action.SUBSCRIBE, topic) for topic in TOPICS if matches(wanted, topic)]
        return all(answers) or (self.partially and any(answers))


@define(eq=False)
class Member:
    """One client of the model, connected or away, with its Session."""

    username: str | None
    client_id: str
    version: int
    lasting: bool
    link: Client | None = None
    will: p.Will | None = None
    subscriptions: dict[str, int] = field(factory=dict)
    is_restored: bool = False  #: away since a restart: its subscriptions are asked about when it is back
    lost: set[str] = field(factory=set)  #: those of them that some rules since then do not allow
    ever: set[str] = field(factory=set)  #: all filters that it had since its Session began
    #: the payloads that it has to receive, with topic and QoS
    owed: dict[bytes, tuple[str, int]] = field(factory=dict)

    @property
    def identity(self) -> Identity:
        return Identity(self.username, self.client_id, groups_of(self.username), "test", "192.0.2.1")

    def forget(self) -> None:
        self.subscriptions.clear()
        self.ever.clear()
        self.owed.clear()


class World:
    """A broker, its clients and the model. ``log`` tells what has happened, for a test that fails."""

    def __init__(self, seed: int, folder: Path, broker: Callable[..., MemoryBroker] = MemoryBroker) -> None:
        self.chance = chance = random.Random(seed)
        self.log: list[str] = []
        self.folder = folder
        self.strict = chance.random() < 0.3
        self.partially = chance.random() < 0.5
        self.withholds = chance.random() < 0.5
        tables = random_rules(chance)
        self.model = Model(tables, self.partially)
        self.authorizer = Authorizer(
            self.compiled(tables),
            subscribe_partially=self.partially,
            source_check=SourceCheck.STRICT if self.strict else SourceCheck.USERS,
        )
        self.broker = broker(
            authorizer=self.authorizer,
            authenticator=Names(),
            on_revoke=OnRevoke.WITHHOLD if self.withholds else OnRevoke.DISCONNECT,
            checks_sources=True,
            judges_guests=self.strict,
        )
        self.members = [
            Member(username, client_id, chance.choice([4, 5]), chance.random() < 0.6) for username, client_id in NAMES
        ]
        self.retained: dict[str, tuple[bytes, tuple[str | None, str]]] = {}
        #: the rules by which each was permitted: it is not judged again before there are others
        self.retained_under: dict[str, Model] = {}
        #: topic and publisher of all messages that were accepted
        self.accepted: dict[bytes, str] = {}
        self.shares: dict[bytes, list[list[Member]]] = {}
        self._numbers = iter(range(1, 1 << 30))
        self.log.append(f"rules {text_of(tables)} partially {self.partially} strict {self.strict}")

    def compiled(self, tables: list[dict[str, Any]]) -> Ruleset:
        path = self.folder / "rules.toml"
        path.write_text(text_of(tables))
        path.chmod(0o600)
        return Ruleset(RuleList.joined([read_rules(path), RuleList(sys_rules(ADMINISTRATION))]))

    # --- steps

    def step(self) -> None:
        chance = self.chance
        member = chance.choice(self.members)
        if member.link is None:
            self.connect(member)
        else:
            step = chance.choices(
                [
                    self.publish, self.run, self.subscribe, self.unsubscribe, self.leave, self.lose, self.replace,
                    self.wait, self.restart,
                ],
                [8, 3, 5, 1, 2, 2, 2, 1, 1],
            )[0]  # fmt: skip
            step(member)
        self.check()

    def connect(self, member: Member) -> None:
        chance = self.chance
        will = None
        if chance.random() < 0.3:
            will = p.Will(chance.choice(PUBLISHED), self.payload(), chance.randint(0, 2), chance.random() < 0.5)
        lasting = (
            Properties(session_expiry_interval=10_000) if member.version == 5 and member.lasting else NO_PROPERTIES
        )
        link = Client(self.broker, member.version)
        self.log.append(f"{member.client_id} connects, will {will}")
        connack = link.connect(
            member.client_id, not member.lasting, username=member.username, will=will, properties=lasting
        )
        assert connack is not None
        allowed = will is None or self.model.may_publish(member.identity, will.topic, will.retain, will.payload)
        assert (connack.reason_code == 0) is allowed, self.story(f"CONNECT with {will} by {member.identity}")
        if allowed:
            member.link, member.will = link, will
            lost, member.lost, member.is_restored = member.lost, set(), False
            # Where later rules allow such a subscription again, it may have ended before, or go on.
            is_told = any(not self.model.grants(member.identity, split_shared(each)[1]) for each in lost)
            if lost and not self.withholds and (is_told or link.network.closed):
                assert link.network.closed, self.story(f"{member.client_id} was not told of its lost subscription")
                self.log.append(f"{member.client_id} was disconnected as it came back")
                self.ended(member, will_is_new=True)
                return
            for packet in link.backlog:
                self.take(member, packet)

    def payload(self) -> bytes:
        return b"%d" % next(self._numbers) if self.chance.random() < 0.85 else b""

    def one(self, member: Member, topic: str, retain: bool) -> tuple[p.Publish, bytes]:
        assert member.link is not None
        payload = self.payload()
        if not payload and not retain:
            payload = b"%d" % next(self._numbers)
        qos = self.chance.randint(0, 2)
        identifier = member.link.identifier() if qos else 0
        return p.Publish(topic, payload, qos, retain, False, identifier), payload

    def publish(self, member: Member) -> None:
        topic, retain = self.chance.choice(PUBLISHED), self.chance.random() < 0.4
        packet, payload = self.one(member, topic, retain)
        packets = [packet]
        if member.version == 5 and self.chance.random() < 0.3:
            alias = Properties(topic_alias=self.chance.randint(1, 2))
            first = p.Publish(topic, payload, packet.qos, retain, False, packet.packet_identifier, alias)
            again, _ = self.one(member, "", retain)
            second = p.Publish("", again.payload, again.qos, retain, False, again.packet_identifier, alias)
            packets = [first, second]
        self.send(member, topic, packets)

    def run(self, member: Member) -> None:
        """Publish many messages in one piece: some of them are runs, or retained runs."""
        assert member.link is not None
        topics = self.chance.sample(PUBLISHED, 3)
        qos, retain = self.chance.randint(0, 1), self.chance.random() < 0.5
        for _ in range(2):  # the broker knows the topics then
            sent = []
            for topic in topics:
                for _ in range(self.chance.randint(1, 4)):
                    payload = b"%d" % next(self._numbers)
                    identifier = member.link.identifier() if qos else 0
                    sent.append((topic, p.Publish(topic, payload, qos, retain, False, identifier)))
            self.log.append(f"{member.client_id} publishes a run, QoS {qos} retain {retain}: {topics}")
            for topic, packet in sent:
                self.expect(member.identity, member.client_id, topic, packet.payload, packet.qos, retain)
            member.link.raw(b"".join(encode(packet, member.version) for _, packet in sent))
            self.drain()

    def send(self, member: Member, topic: str, packets: list[p.Publish]) -> None:
        assert member.link is not None
        for packet in packets:
            self.log.append(f"{member.client_id} publishes {topic} {packet.payload!r} {packet.qos} {packet.retain}")
            self.expect(member.identity, member.client_id, topic, packet.payload, packet.qos, packet.retain)
        member.link.raw(b"".join(encode(packet, member.version) for packet in packets))
        allowed = [self.model.may_publish(member.identity, topic, one.retain, one.payload) for one in packets]
        answers = {}
        for came in self.drain(member):
            if isinstance(came, p.Puback | p.Pubrec):
                answers[came.packet_identifier] = came.reason_code
                if isinstance(came, p.Pubrec) and came.reason_code < ReasonCode.UNSPECIFIED_ERROR:
                    member.link.send(p.Pubrel(came.packet_identifier))
        if member.version == 5:
            for packet, may in zip(packets, allowed, strict=True):
                if packet.qos:
                    refused = answers[packet.packet_identifier] == ReasonCode.NOT_AUTHORIZED
                    assert refused is not may, self.story(f"{packet} was answered {answers}")

    def expect(self, identity: Identity, client_id: str, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        """Note who has to receive a message, and that it is retained, if it is allowed."""
        model = self.model
        if not model.may_publish(identity, topic, retain, payload):
            return
        if retain and payload:
            self.retained[topic] = payload, (identity.username, client_id)
            self.retained_under[topic] = self.model
        elif retain:
            self.retained.pop(topic, None)
        if not payload:
            return
        self.accepted[payload] = topic
        groups: dict[str, list[Member]] = {}
        for member in self.members:
            plain = -1
            for wanted, granted in member.subscriptions.items():
                share, inner = split_shared(wanted)
                if not matches(inner, topic) or not model.may_receive(member.identity, topic):
                    continue
                if share is None:
                    plain = max(plain, min(granted, qos))
                elif member.link is not None:
                    groups.setdefault(wanted, []).append(member)
            if plain > 0 or (plain == 0 and member.link is not None):
                member.owed[payload] = topic, plain
        self.shares[payload] = list(groups.values())

    def subscribe(self, member: Member) -> None:
        assert member.link is not None
        wanted = [
            (self.chance.choice(["", "", "", "$share/g/"]) if member.version == 5 else "")
            + topic_filter(self.chance, LEVELS)
            for _ in range(self.chance.choice([1, 1, 2, 12]))
        ]
        qos = self.chance.randint(0, 2)
        member.link.send(
            p.Subscribe(member.link.identifier(), tuple(p.SubscriptionRequest(each, qos) for each in wanted))
        )
        came = self.drain(member, taken=False)
        suback = next(packet for packet in came if isinstance(packet, p.Suback))
        self.log.append(f"{member.client_id} subscribes to {wanted} with {qos}: {tuple(suback.reason_codes)}")
        for each, code in zip(wanted, suback.reason_codes, strict=True):
            share, inner = split_shared(each)
            may = self.model.grants(member.identity, inner)
            assert (code < 0x80) is may, self.story(f"SUBSCRIBE {each} by {member.identity} was answered {code:#x}")
            if not may:
                continue
            member.subscriptions[each] = qos
            member.ever.add(inner)
            if share is None:
                for topic, (payload, publisher) in self.retained.items():
                    if (
                        matches(inner, topic)
                        and self.model.may_receive(member.identity, topic)
                        and self.model.may_keep(publisher, topic, self.strict)
                    ):
                        member.owed[payload] = topic, 1
        for packet in came:
            self.take(member, packet, replayed=True)

    def unsubscribe(self, member: Member) -> None:
        assert member.link is not None
        if member.subscriptions:
            wanted = self.chance.choice(list(member.subscriptions))
            self.log.append(f"{member.client_id} unsubscribes from {wanted}")
            member.link.send(p.Unsubscribe(member.link.identifier(), (wanted,)))
            self.drain()
            del member.subscriptions[wanted]

    def leave(self, member: Member) -> None:
        """End the connection with DISCONNECT or without, perhaps before its messages are read."""
        link, will = member.link, member.will
        assert link is not None
        normally = self.chance.random() < 0.4
        self.log.append(f"{member.client_id} leaves {'normally' if normally else ''}")
        if normally:
            link.send(p.Disconnect())
            self.drain()
        member.link = member.will = None
        if not member.lasting:
            member.forget()
        if not normally and will is not None:
            self.expect(member.identity, member.client_id, will.topic, will.payload, will.qos, will.retain)
        link.drop()

    def lose(self, member: Member) -> None:
        """Lose a connection before the client has read the last messages: QoS 1 and 2 come again."""
        publisher = self.chance.choice(self.members)
        link = member.link
        if publisher is member or publisher.link is None or link is None or any(map(is_shared, member.subscriptions)):
            return
        sent = []
        for topic in self.chance.sample(PUBLISHED, 5):
            packet, _ = self.one(publisher, topic, False)
            sent.append(packet)
            self.log.append(f"{publisher.client_id} publishes {topic} {packet.payload!r} {packet.qos}")
            self.expect(publisher.identity, publisher.client_id, topic, packet.payload, packet.qos, False)
        publisher.link.raw(b"".join(encode(packet, publisher.version) for packet in sent))
        link.packets()
        self.log.append(f"{member.client_id} loses its connection unread")
        self.ended(member, will_is_new=True)
        self.drain()

    def restart(self, _: Member) -> None:
        """Kill the broker, and start it again. Clients with a Will come back at once."""
        if not isinstance(self.broker, RestartableBroker):
            return
        self.log.append("restart")
        self.broker = self.broker.restart(self.chance.choice([0, 1, 100]))
        had_will = [member for member in self.members if member.link is not None and member.will is not None]
        for member in self.members:
            member.link = member.will = None
            member.is_restored = member.lasting
            if not member.lasting:
                member.forget()
        for member in had_will:
            self.connect(member)

    def replace(self, member: Member) -> None:
        """Replace the rules, and publish before the broker has looked at the subscriptions again."""
        tables = random_rules(self.chance)
        self.log.append(f"rules {text_of(tables)}")
        self.authorizer.replace(self.compiled(tables))
        self.model = Model(tables, self.partially)
        revoked = []
        for each in self.members:
            lost = [
                wanted for wanted in each.subscriptions if not self.model.grants(each.identity, split_shared(wanted)[1])
            ]
            for wanted in lost:
                del each.subscriptions[wanted]
            if lost:
                revoked.append(each)
                each.lost.update(lost if each.is_restored else ())
            self.cut(each)
        ending = [each for each in revoked if each.link is not None and not self.withholds]
        for each in ending:  # their Wills are published somewhere in between
            if each.will is not None and self.model.may_publish(
                each.identity, each.will.topic, each.will.retain, each.will.payload
            ):
                self.accepted[each.will.payload] = each.will.topic
        if self.chance.random() < 0.5:  # the walk comes later, behind other work
            self.broker.registry._work.do("other", iter([1] * 60))
            self.broker.registry._work.do(self.broker.registry.grants, iter([1] * 60))
        if self.chance.random() < 0.6:
            self.broker.registry.grants.revoke()
        publisher = next((each for each in self.members if each.link is not None and each not in ending), None)
        if publisher is not None:
            self.at_once(publisher)
        self.broker.registry.grants.revoke()
        self.broker.settle()
        self.drain()
        for each in self.members:
            is_closed = each.link is not None and each.link.network.closed
            assert is_closed is (each in ending), self.story(f"{each.client_id} was disconnected: {is_closed}")
        for each in ending:
            self.log.append(f"{each.client_id} was disconnected")
            self.ended(each)

    def at_once(self, member: Member) -> None:
        """Publish in the turn in which the rules were replaced."""
        assert member.link is not None
        packet, _ = self.one(member, self.chance.choice(PUBLISHED), self.chance.random() < 0.4)
        self.log.append(
            f"{member.client_id} publishes at once {packet.topic} {packet.payload!r} {packet.qos} {packet.retain}"
        )
        self.expect(member.identity, member.client_id, packet.topic, packet.payload, packet.qos, packet.retain)
        member.link.connection.receive(encode(packet, member.version))

    def ended(self, member: Member, will_is_new: bool = False) -> None:
        """Take the end of a connection: what was sent with QoS 0 may be lost. The Will is published."""
        link, will = member.link, member.will
        assert link is not None
        member.link = member.will = None
        for payload, (_, qos) in list(member.owed.items()):
            if not qos:
                del member.owed[payload]
        self.shares = {
            payload: [group for group in groups if member not in group] for payload, groups in self.shares.items()
        }
        if not member.lasting:
            member.forget()
        if will is not None:
            self.expect(member.identity, member.client_id, will.topic, will.payload, will.qos, will.retain)
        link.drop()
        if will is not None and not will_is_new:
            for other in self.members:  # some of them were disconnected before
                other.owed.pop(will.payload, None)
            self.shares.pop(will.payload, None)

    def cut(self, member: Member) -> None:
        """Forget what a member is owed and may not receive any more."""
        for payload, (topic, _) in list(member.owed.items()):
            if not self.model.may_receive(member.identity, topic):
                del member.owed[payload]

    def wait(self, _: Member) -> None:
        """Let time pass: a survey judges the publishers."""
        self.broker.advance(self.chance.choice([0.5, 3, 10]))

    # --- what has come

    def drain(self, wanted: Member | None = None, taken: bool = True) -> list[p.Packet]:
        """Let every client read and acknowledge. Return what one of them has received."""
        found: list[p.Packet] = []
        for member in self.members:
            if member.link is None:
                continue
            while came := member.link.packets():
                answers: list[p.Packet] = []
                for packet in came:
                    match packet:
                        case p.Publish(qos=1):
                            answers.append(p.Puback(packet.packet_identifier))
                        case p.Publish(qos=2):
                            answers.append(p.Pubrec(packet.packet_identifier))
                        case p.Pubrel():
                            answers.append(p.Pubcomp(packet.packet_identifier))
                        case p.Pubrec() if member is not wanted and packet.reason_code < 0x80:
                            answers.append(p.Pubrel(packet.packet_identifier))
                    if member is wanted:
                        found.append(packet)
                    if taken or member is not wanted:
                        self.take(member, packet)
                if answers and not member.link.network.closed:
                    member.link.send(*answers)
        return found

    def take(self, member: Member, packet: p.Packet, replayed: bool = False) -> None:
        """Judge what a client has received."""
        if not isinstance(packet, p.Publish) or packet.topic.startswith("$SYS"):
            return
        topic, payload = packet.topic, packet.payload
        if payload:
            assert self.accepted.get(payload) == topic, self.story(f"{member.client_id} got {packet}: not accepted")
        assert self.model.may_receive(member.identity, topic), self.story(f"{member.client_id} got {packet}: denied")
        assert any(matches(each, topic) for each in member.ever), self.story(f"{member.client_id} got {packet}")
        if replayed and topic in self.retained and self.retained[topic][0] == payload:
            may = self.retained_under.get(topic) is self.model
            may = may or self.model.may_keep(self.retained[topic][1], topic, self.strict)
            assert may, self.story(f"{member.client_id} got {packet}, whose publisher may not retain it")
        member.owed.pop(payload, None)
        self.shares[payload] = [group for group in self.shares.get(payload, ()) if member not in group]

    def check(self) -> None:
        """Compare what has arrived and what is retained with the model."""
        self.broker.settle()
        self.drain()
        for member in self.members:
            if member.link is not None:
                assert not member.link.network.closed, self.story(f"{member.client_id} was disconnected")
                assert not member.owed, self.story(f"{member.client_id} has not got {member.owed}")
        for payload, groups in self.shares.items():
            assert not groups, self.story(f"{payload!r} has come to none of {groups}")
        self.shares.clear()
        stored = dict(self.stored())
        model = {topic: payload for topic, (payload, _) in self.retained.items()}
        assert stored == model, self.story(f"retained: {stored}, not {model}")

    def stored(self) -> Iterator[tuple[str, bytes]]:
        for topic in PUBLISHED:
            reading = self.broker.store.get(topic)
            found: list[Any] = []
            reading.addCallback(found.append)
            self.broker.settle()
            if found[0] is not None:
                yield topic, found[0].payload

    def story(self, what: str) -> str:
        return "\n".join([*self.log[-60:], what])
