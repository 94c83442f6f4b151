"""PUBLISH with conditions: answers, order, routing, refusals, and repetitions."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed

from holdfast.core.extensions import ANSWER
from holdfast.core.messages import ApplicationMessage, ChangeKind
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.identity.interfaces import Principal, UnrestrictedAuthorizer
from holdfast.retained.limits import OnLimit, RetainerLimits
from holdfast.sessions.limits import Limits, RetainMode
from holdfast.wire import NO_PROPERTIES, Properties, encode
from holdfast.wire import packets as p
from tests.authorizers import Permissions
from tests.doubles import Client, MemoryBroker
from tests.retained.store.delayed_store import DelayedStore

ABSENT = ("holdfast-if-absent", "")
Answer = tuple[int, int | None]


def participant(broker: MemoryBroker, client_id: str = "c", *, clean: bool = True, **wishes: Any) -> Client:
    """Connect a client that takes part; its Session outlives the connection."""
    asked = Properties(user_properties=(("holdfast", "?"),), session_expiry_interval=600, **wishes)
    return broker.client(client_id, 5, clean=clean, properties=asked)


def conditional(
    client: Client,
    payload: bytes,
    *conditions: tuple[str, str],
    qos: int = 1,
    retain: bool = True,
    dup: bool = False,
    identifier: int | None = None,
) -> None:
    """Publish to the topic "t" under conditions."""
    properties = Properties(user_properties=conditions)
    number = 0 if not qos else client.identifier() if identifier is None else identifier
    client.send(p.Publish("t", payload, qos, retain, dup, number, properties))


def answers(client: Client) -> list[Answer]:
    """Return the Reason Codes of the received PUBACK and PUBREC packets, and the revisions that they tell."""
    found: list[Answer] = []
    for packet in client.packets():
        if isinstance(packet, p.Puback | p.Pubrec):
            told = dict(packet.properties.user_properties)
            found.append((packet.reason_code, int(told["holdfast-revision"]) if told else None))
    return found


def revision_of(broker: MemoryBroker) -> int:
    """Return the revision of the present message of the topic "t", 0 for none."""
    found: list[Any] = []
    broker.store.get("t").addCallback(found.append)
    return 0 if found[0] is None else found[0].revision


def test_connack_offers_it() -> None:
    """Participants are told that the broker has it."""
    assert "compare-and-set" in ANSWER[1].split(" ")[1].split(",")


@pytest.mark.parametrize("qos", [1, 2])
def test_success_and_failure(qos: int) -> None:
    """Only a message whose condition holds is stored and delivered. Both answers tell the present revision."""
    broker = MemoryBroker()
    reader = broker.client("r", 5)
    reader.subscribe("t")
    client = participant(broker)
    conditional(client, b"1", ABSENT, qos=qos)
    first = revision_of(broker)
    conditional(client, b"2", ABSENT, qos=qos)
    conditional(client, b"3", ("holdfast-if-revision", str(first)), qos=qos)
    second = revision_of(broker)
    assert answers(client) == [(0, first), (0x83, first), (0, second)]
    assert first < second
    sent = reader.got(p.Publish)
    assert [packet.payload for packet in sent] == [b"1", b"3"]
    assert sent[0].properties.user_properties == (ABSENT,)  # forwarded unaltered
    assert (broker.counters.conditions_held, broker.counters.conditions_failed) == (2, 1)


def test_no_subscriber() -> None:
    """The answer tells that nobody subscribes, as for any message, and the revision."""
    broker = MemoryBroker()
    client = participant(broker)
    conditional(client, b"1", ABSENT)
    assert answers(client) == [(0x10, revision_of(broker))]


def test_conditional_clear_is_routed() -> None:
    """An empty payload clears the topic if the condition holds, and subscribers are told."""
    broker = MemoryBroker()
    client = participant(broker)
    conditional(client, b"1", ABSENT)
    reader = broker.client("r", 5)
    reader.subscribe("t")
    reader.messages()
    conditional(client, b"", ("holdfast-if-revision", "1"))
    conditional(client, b"", ("holdfast-if-revision", str(revision_of(broker))))
    assert [code for code, _ in answers(client)] == [0x10, 0x83, 0]
    assert [payload for _, payload, _, _ in reader.messages()] == [b""]
    assert revision_of(broker) == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_without_answer_or_retained_message(qos: int, retain: bool) -> None:
    """With QoS 0 or RETAIN 0 the message is stored and routed nowhere, and counted."""
    if qos and retain:
        return
    broker = MemoryBroker()
    reader = broker.client("r", 5)
    reader.subscribe("t")
    client = participant(broker)
    conditional(client, b"1", ABSENT, qos=qos, retain=retain)
    assert [code for code, _ in answers(client)] == ([0x83] if qos else [])
    assert reader.packets() == []
    assert revision_of(broker) == 0
    assert broker.counters.messages_dropped_conditional == 1
    conditional(client, b"2", ABSENT)  # nothing else is lost
    assert [code for code, _ in answers(client)] == [0]


@pytest.mark.parametrize("conditions", [(ABSENT, ABSENT), (("holdfast-if-revision", "x"),)])
def test_bad_condition(conditions: tuple[tuple[str, str], ...]) -> None:
    """It is refused with 0x83 and a Reason String that names the property; nothing is stored."""
    broker = MemoryBroker()
    client = participant(broker)
    conditional(client, b"1", *conditions)
    (puback,) = client.got(p.Puback)
    assert puback.reason_code == 0x83
    assert (puback.properties.reason_string or "").startswith(f"User Property {conditions[0][0]} ")
    assert revision_of(broker) == 0


def test_client_that_takes_no_properties() -> None:
    """With Request Problem Information 0 the revision cannot be told, so the request is refused [MQTT-3.1.2-29]."""
    broker = MemoryBroker()
    client = participant(broker, request_problem_information=0)
    conditional(client, b"1", ABSENT)
    (puback,) = client.got(p.Puback)
    assert (puback.reason_code, puback.properties) == (0x83, NO_PROPERTIES)
    assert revision_of(broker) == 0


@pytest.mark.parametrize("mode", [RetainMode.DROP, RetainMode.DOWNGRADE])
def test_zone_without_retained_messages(mode: RetainMode) -> None:
    """Where the message would not be retained, its condition is refused."""
    client = participant(MemoryBroker(limits=Limits(retained_messages_mode=mode)))
    conditional(client, b"1", ABSENT)
    assert answers(client) == [(0x83, None)]


@pytest.mark.parametrize("policy", list(OnLimit))
def test_message_over_a_limit(policy: OnLimit) -> None:
    """A message that a limit forbids to retain is refused, and delivered to nobody, with any policy."""
    broker = MemoryBroker(retainer=RetainerLimits(max_payload_size=1, on_limit=policy))
    reader = broker.client("r", 5)
    reader.subscribe("t")
    client = participant(broker)
    conditional(client, b"too long", ABSENT)
    if policy is OnLimit.DISCONNECT:
        assert client.network.closed
    else:
        assert answers(client) == [(0x97, None)]
    assert reader.packets() == []


def test_denied() -> None:
    """The authorizer is asked as for every PUBLISH, also if it answers later."""

    class Later(UnrestrictedAuthorizer):
        def __init__(self) -> None:
            self.asked: list[Deferred[bool]] = []

        def may_publish(self, *_: Any) -> Deferred[bool]:
            self.asked.append(Deferred())
            return self.asked[-1]

    authorizer = Later()
    broker = MemoryBroker(authorizer=authorizer)
    client = participant(broker)
    conditional(client, b"1", ABSENT)
    conditional(client, b"2", ABSENT)
    assert answers(client) == []
    authorizer.asked[0].callback(False)
    authorizer.asked[1].callback(True)
    broker.settle()
    assert [code for code, _ in answers(client)] == [0x87, 0x10]


@pytest.mark.parametrize("condition", [ABSENT, ("holdfast-if-absnet", "")])
def test_will_with_a_condition_is_refused(condition: tuple[str, str]) -> None:
    """Nobody could be told its outcome, so the CONNECT is refused with 0x83."""
    client = Client(MemoryBroker(), 5)
    will = p.Will("t", b"gone", 1, True, properties=Properties(user_properties=(condition,)))
    connack = client.connect("c", will=will, properties=Properties(user_properties=(("holdfast", "?"),)))
    assert connack is not None
    assert connack.reason_code == 0x83
    assert "Will" in (connack.properties.reason_string or "")


class Waiting:
    """A broker whose store commits when the test says so, with a reader and a participant."""

    def __init__(self, retainer: RetainerLimits | None = None) -> None:
        self.broker = MemoryBroker(store=DelayedStore, retainer=retainer)
        self.reader = self.broker.client("r", 5)
        self.reader.subscribe("#")
        self.client = participant(self.broker)

    def commit(self, failure: StorageFailure | None = None) -> None:
        self.broker.store.commit(failure)
        self.broker.settle()

    def read(self) -> list[tuple[str, bytes]]:
        return [(topic, payload) for topic, payload, _, _ in self.reader.messages()]


def test_later_messages_of_the_client_wait() -> None:
    """Neither the message nor what the client publishes after it reaches a subscriber before the decision."""
    waiting = Waiting()
    conditional(waiting.client, b"1", ABSENT)
    waiting.client.publish("t", b"2", 0, True)
    waiting.client.publish("u", b"3", 0)
    assert waiting.read() == []
    waiting.commit()
    assert waiting.read() == [("t", b"1"), ("t", b"2"), ("u", b"3")]


@pytest.mark.parametrize("limit", [0, 10])
def test_a_client_whose_message_waits_is_answered_its_pings(limit: int) -> None:
    """While the database is away, for longer than any Keep Alive, the client does not take its connection for dead.

    A PINGREQ behind another packet waits with that packet.
    """
    waiting = Waiting(RetainerLimits(max_retained_messages=limit))
    client = waiting.client
    sent = [encode(p.Publish("t", b"1", 1, True, False, 1, Properties(user_properties=(ABSENT,))), 5)]
    client.raw(b"".join((*sent, encode(p.Pingreq(), 5))))
    assert client.packets() == [p.Pingresp()]
    for byte in encode(p.Pingreq(), 5):
        client.raw(bytes([byte]))
    assert client.packets() == [p.Pingresp()]
    client.publish("u", b"2", 0)
    client.send(p.Pingreq())
    assert client.packets() == []
    waiting.commit()
    waiting.commit()
    assert [type(packet) for packet in client.packets()] == [p.Puback, p.Pingresp]
    assert waiting.read() == [("t", b"1"), ("u", b"2")]


def test_newer_message_of_another_client_is_never_overtaken() -> None:
    """Others do not wait. What they have published meanwhile is newer, so the older message is not routed after it."""
    waiting = Waiting()
    conditional(waiting.client, b"1", ABSENT)
    waiting.broker.client("other", 5).publish("t", b"2", 0, True)
    waiting.broker.client("other", 5).publish("u", b"3", 0, True)
    assert waiting.read() == [("t", b"2"), ("u", b"3")]
    waiting.commit()
    assert waiting.read() == []
    assert [code for code, _ in answers(waiting.client)] == [0]
    late = waiting.broker.client("late", 5)
    replayed = [packet for packet in late.subscribe("t") if isinstance(packet, p.Publish)]
    assert [packet.payload for packet in replayed] == [b"2"]


def test_expiry_overtakes_nothing() -> None:
    """A message that expires while the next one waits for its decision is older: the next one is delivered."""
    waiting = Waiting()
    expiring = Properties(message_expiry_interval=1)
    waiting.broker.client("other", 5).publish("t", b"old", 0, True, expiring)
    waiting.commit()
    waiting.broker.advance(2)
    conditional(waiting.client, b"1", ABSENT)
    waiting.broker.advance(600)
    assert waiting.broker.retained.changes[ChangeKind.EXPIRE] == 1
    waiting.commit()  # the tombstone has a higher revision
    waiting.commit()
    assert waiting.read() == [("t", b"old"), ("t", b"1")]


STEPS = st.one_of(
    st.tuples(st.sampled_from(["set", "clear"]), st.integers(0, 2)),
    st.tuples(st.sampled_from(["if absent", "if known", "clear if known"]), st.integers(0, 2)),
    st.tuples(st.sampled_from(["commit", "join"]), st.just(0)),
)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_never_stale_after_fresh(steps: list[tuple[str, int]]) -> None:
    """However plain and conditional changes and commits mix, each subscriber ends with what the store has."""
    broker = MemoryBroker(store=DelayedStore)
    clients = [participant(broker, f"c{number}") for number in range(3)]
    known = [0, 0, 0]
    readers: list[Client] = []
    held: list[bytes] = []  #: what each reader has now, b"" for nothing

    def read() -> None:
        for place, reader in enumerate(readers):
            for packet in reader.got(p.Publish):
                held[place] = packet.payload
        for place, client in enumerate(clients):
            for _, revision in answers(client):
                known[place] = known[place] if revision is None else revision

    def join() -> None:
        readers.append(broker.client(f"r{len(readers)}", 5))
        held.append(b"")
        readers[-1].send(p.Subscribe(1, (p.SubscriptionRequest("t", 0),)))

    join()
    for number, (step, who) in enumerate(steps):
        payload = b"" if "clear" in step else b"%d" % number
        if step == "commit":
            broker.store.commit()
            broker.settle()
        elif step == "join":
            join()
        elif step in {"set", "clear"}:
            clients[who].publish("t", payload, 1, True)
        else:
            condition = ABSENT if step == "if absent" else ("holdfast-if-revision", str(known[who]))
            conditional(clients[who], payload, condition)
        read()
    for _ in range(100):
        if not broker.store.pending:
            break
        broker.store.commit()
        broker.settle()
        read()
    found: list[Any] = []
    broker.store.get("t").addCallback(found.append)
    assert held == [b"" if found[0] is None else found[0].payload] * len(readers)


def test_store_that_cannot_tell() -> None:
    """If the outcome is unknown, no answer leaves: the client repeats the message. Otherwise it is told the failure."""
    waiting = Waiting()
    conditional(waiting.client, b"1", ABSENT)
    waiting.commit(StorageFailure(FailureKind.FULL, "full"))
    assert answers(waiting.client) == [(0x97, None)]
    conditional(waiting.client, b"1", ABSENT)
    waiting.commit(StorageFailure(FailureKind.UNAVAILABLE, "away"))
    assert answers(waiting.client) == []
    assert waiting.client.network.closed
    assert waiting.read() == []
    assert waiting.broker.counters.commits_failed == 2


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("back_early", [False, True])
def test_connection_that_ends_before_the_decision(qos: int, back_early: bool) -> None:
    """The repetition with DUP 1 succeeds with the revision of the first one; with QoS 2 it is delivered once."""
    waiting = Waiting()
    conditional(waiting.client, b"1", ABSENT, qos=qos, identifier=7)
    waiting.client.drop()
    if not back_early:
        waiting.commit()
    again = participant(waiting.broker, clean=False)
    conditional(again, b"1", ABSENT, qos=qos, dup=True, identifier=7)
    waiting.commit()
    code, revision = answers(again)[0]
    assert code == 0
    assert revision == revision_of(waiting.broker)
    assert waiting.read() == [("t", b"1")] * (2 if qos == 1 else 1)


def test_repeated_qos_2_message_whose_change_is_gone() -> None:
    """It has succeeded, and the answer says so; but no revision of somebody else is told."""
    broker = MemoryBroker()
    client = participant(broker)
    conditional(client, b"1", ABSENT, qos=2, identifier=7)
    conditional(client, b"1", ABSENT, qos=2, identifier=7, dup=True)
    assert answers(client) == [(0x10, revision_of(broker)), (0, revision_of(broker))]
    broker.client("other", 5).publish("t", b"2", 0, True)
    conditional(client, b"1", ABSENT, qos=2, identifier=7, dup=True)
    assert answers(client) == [(0, None)]


def test_repetition_whose_change_is_gone() -> None:
    """Somebody else has changed the topic since: the answer is the present revision."""
    broker = MemoryBroker()
    client = participant(broker)
    conditional(client, b"1", ABSENT)
    broker.client("other", 5).publish("t", b"2", 0, True)
    client.packets()
    conditional(client, b"1", ABSENT, dup=True)
    assert answers(client) == [(0x83, revision_of(broker))]


@pytest.mark.parametrize("late", [False, True])
def test_a_client_that_may_only_write_learns_nothing_about_the_present_message(late: bool) -> None:
    """Neither its revision nor, by guessing, its payload. It may still write only what is absent, or its own."""
    permissions = LatePermissions() if late else Permissions()
    broker = MemoryBroker(authorizer=permissions)
    other, client = broker.client("other", 5), participant(broker)
    other.publish("t", b"secret", 1, True)
    before = revision_of(broker)
    permissions.deny("receive", "t")
    wrong, right = (sha256(guess).hexdigest() for guess in (b"guess", b"secret"))
    for digest in (wrong, right):
        conditional(client, b"1", ("holdfast-if-payload-sha256", digest))
        conditional(client, b"1", ("holdfast-if-payload-sha256", digest), ("holdfast-if-revision", "1"), qos=2)
    assert answers(client) == [(0x87, None)] * 4
    conditional(client, b"1", ABSENT)
    conditional(client, b"1", ("holdfast-if-revision", "1"))
    assert answers(client) == [(0x83, None)] * 2
    assert revision_of(broker) == before
    other.publish("t", b"", 1, True)
    conditional(client, b"1", ABSENT)
    ((code, own),) = answers(client)
    assert (code, own) == (0x10, revision_of(broker))
    conditional(client, b"2", ("holdfast-if-revision", str(own)))
    assert answers(client) == [(0x10, revision_of(broker))]


class LatePermissions(Permissions):
    """Answers about deliveries later."""

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> Any:
        return succeed(super().may_receive(principal, message))
