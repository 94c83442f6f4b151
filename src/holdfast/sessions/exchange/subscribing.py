"""SUBSCRIBE of one Client: checks, authorization, the answer, and the replays that it begins.

How it works. A SUBSCRIBE is answered in three steps. First every Topic Filter is checked against the limits, and the
authorizer is asked about it; a filter that is not well formed ends the connection. Then all granted subscriptions are
stored and take effect. Then SUBACK waits for these commits. A long SUBSCRIBE is worked on in parts
(:mod:`holdfast.scheduling.long_work`). The Client's later packets wait for the parts, and for the authorizer's
answers.

A live message or a replay may come before SUBACK: the standard allows that. A packet that names one Topic Filter twice
has the effect of two packets [MQTT5-3.8.4-5], but its subscription is stored once, with the later options.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Protocol

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from holdfast.changes.moments import HistoryUnavailable
from holdfast.changes.since import NOTHING_KNOWN, ChangesSince, Known, Since, known_of
from holdfast.core.extensions import (
    CONFLATE,
    DELTA,
    FULL,
    MOST_IN_SUBSCRIBE,
    NEEDING_PART_IN_SUBSCRIBE,
    PUBLISHER_FACT,
    REPLAY_END_PROPERTY,
    REPLAY_SINCE,
    BadRequest,
    Facts,
    PastFilter,
    UserProperties,
    check_takes_part,
    past_filter,
    subscribe_requests,
)
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure, TicketsTogether
from holdfast.core.topics import (
    QUEUE_PREFIX,
    REPLAY_END_TOPIC,
    SHARED_PREFIX,
    behind_time,
    has_wildcard,
    is_granted_to_all,
    is_of_past,
    is_sys,
    levels_before_wildcard,
    matching,
    split_shared,
    wildcard_pattern,
)
from holdfast.identity.interfaces import Grant
from holdfast.retained.rules import Subscriber
from holdfast.scheduling.long_work import COMPARED_PER_STEP, Meter, weight_of_comparison
from holdfast.sessions.connection.acknowledgements import explain_refusals, failure_reason
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.replays import Replays
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.unsubscribing import CHECKS_PER_STEP, LongPackets, TopicFilterChecks, weight_of_check
from holdfast.sessions.state import PendingMarker, Subscription
from holdfast.wire import NO_PROPERTIES, Properties, ProtocolError, ReasonCode, encode
from holdfast.wire.packets import ExcessiveSubscribe, Suback, Subscribe, SubscriptionRequest

#: notes for the Reason String, and the most of them
_NOT_TOLD = "publishers are not told: not permitted"
_NOT_CONFLATED = f"{CONFLATE} does not hold for shared subscriptions"
_MOST_NOTES = 10
#: MQTT 3 has one code for all failures.
_CODES_OF_MQTT_3 = bytes(code if code < ReasonCode.UNSPECIFIED_ERROR else 0x80 for code in range(256))


@frozen
class _Wanted:
    """An allowed request for a subscription, and whether its retained messages are asked for.

    ``filtered``: see :class:`Subscription`.
    """

    request: SubscriptionRequest
    replayed: bool
    filtered: bool


@define(eq=False)
class _Asked:
    """A SUBSCRIBE that is worked on. ``codes`` has the Reason Code of each request so far.

    ``wanted`` has the allowed requests by Topic Filter, in their order; None until the authorizer answers. ``own`` are
    subscriptions to the broker's own topics. ``epoch`` is that of the authorizer at the first question. ``ends`` says
    which markers are due, None for none. ``conflate`` is the interval of conflation in milliseconds, 0 for none.
    ``facts`` are to be told of each replayed message. ``notes`` are for the Reason String.
    ``pasts`` are the Topic Filters of the past, by the number of their request. ``unexplained`` are the Reason Codes of
    refusals without a note. ``known`` is what the Client knows,
    None if it did not say, and ``since`` the answer.
    """

    packet_identifier: int
    identifier: int | None
    epoch: object
    codes: bytearray = field(factory=bytearray)
    wanted: dict[str, _Wanted | None] = field(factory=dict)
    waiting: list[Deferred[None]] = field(factory=list)
    tickets: TicketsTogether = field(factory=TicketsTogether)
    own: list[str] = field(factory=list)
    ends: ReplayEnds | None = None
    conflate: int = 0
    facts: Facts = ()
    notes: list[str] = field(factory=list)
    pasts: dict[int, PastFilter] = field(factory=dict)
    unexplained: set[int] = field(factory=set)
    known: Known | None = None
    since: Since = NOTHING_KNOWN
    looked_up: bool = False

    @property
    def answer(self) -> str:
        """Whether everything is replayed or only what has changed, "" if that was not asked for."""
        if self.known is None:
            return ""
        return FULL if self.since.turn is None else DELTA

    @property
    def asks_for_publishers(self) -> bool:
        """Whether publishers are to be told, and no Topic Filter so far forbids it."""
        return PUBLISHER_FACT in self.facts and _NOT_TOLD not in self.notes

    def note(self, text: str) -> None:
        """Add a text to the Reason String, once. Of many different texts, the first ones are enough."""
        if len(self.notes) < _MOST_NOTES and text not in self.notes:
            self.notes.append(text)


class _Patterns:
    """The wildcard patterns of a Session, and those that a SUBSCRIBE adds (see :class:`Subscriptions`)."""

    def __init__(self, known: Collection[int], most: int | None) -> None:
        self._known = known
        self._most = most
        self._new: set[int] = set()

    def take(self, key: str) -> bool:
        """Note the pattern of a new Topic Filter, given with its share. Return False if it is one too many."""
        if self._most is None or "+" not in key:
            return True
        pattern = wildcard_pattern(split_shared(key)[1])
        if pattern and pattern not in self._known and pattern not in self._new:
            if len(self._known) + len(self._new) >= self._most:
                return False
            self._new.add(pattern)
        return True


class Subscribing:
    """Handles the SUBSCRIBE packets of one Client."""

    def __init__(self, link: Connection, session: Session, parts: BrokerParts, replays: Replays) -> None:
        self._link = link
        self._session = session
        self._parts = parts
        self._replays = replays
        self._limits = link.limits
        self._v5 = link.protocol_version == 5
        self._checks = TopicFilterChecks(link)
        self._long = LongPackets(link, session, parts)

    def subscribe(self, packet: Subscribe) -> None:
        """Check each subscription, ask the authorizer, then grant the allowed ones [MQTT5-3.8.4]."""
        if packet.properties.subscription_identifiers and not self._limits.subscription_identifiers:
            raise ProtocolError(
                "Subscription Identifiers are not offered", ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED
            )
        asked = _Asked(
            packet.packet_identifier,
            next(iter(packet.properties.subscription_identifiers), None),
            self._parts.authorizer.epoch,
        )
        if packet.properties.user_properties:
            try:
                self._take_requests(asked, packet.properties.user_properties)
            except BadRequest as bad:
                self._refuse(packet, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(bad))
                return
        if asked.ends is not None or asked.known is not None or REPLAY_END_TOPIC in self._session.subscriptions:
            self._look_up_changes(asked)
        self._long.in_portions(self._check_all(packet, asked), lambda: self._checked(asked))

    def _take_requests(self, asked: _Asked, properties: UserProperties) -> None:
        """Note what User Properties ask for. Raises :class:`BadRequest`."""
        if not self._link.participant:
            check_takes_part(properties, NEEDING_PART_IN_SUBSCRIBE)
            return
        requests = subscribe_requests(properties, self._limits.max_topic_levels)
        asked.conflate = requests.conflate
        asked.facts = requests.replay_info
        if requests.replay_end is not None:
            asked.ends = ReplayEnds(requests.replay_end, self._session)
        if requests.replay_since is not None:
            asked.known = self._known(requests.replay_since)

    def _known(self, text: str) -> Known:
        """Return the token or the time of a request. Raises :class:`BadRequest`."""
        if not self._link.explanations.may_tell:
            raise BadRequest(f"User Property {REPLAY_SINCE} needs Request Problem Information 1: SUBACK answers it")
        try:
            return known_of(text, self._parts.now())
        except BadRequest as bad:
            raise BadRequest(f"User Property {REPLAY_SINCE}: {bad}") from None

    def _look_up_changes(self, asked: _Asked) -> None:
        """Get a token for the markers, and find what has changed since the one that the Client has. Once is enough."""
        since: ChangesSince | None = self._parts.replays.since
        if since is None or asked.looked_up:
            return
        asked.looked_up = True

        def found(result: Since) -> None:
            asked.since = result

        if asked.known is not None:
            looked: Deferred[Since] = since.since(asked.known)
        else:
            looked = since.token().addCallback(Since)
        asked.waiting.append(looked.addCallback(found))

    def refuse(self, packet: ExcessiveSubscribe) -> None:
        """Refuse all subscriptions of a SUBSCRIBE with too many properties."""
        self._refuse(packet, ReasonCode.QUOTA_EXCEEDED, packet.explanation)

    def _refuse(self, packet: Subscribe | ExcessiveSubscribe, reason: ReasonCode, why: str) -> None:
        asked = _Asked(packet.packet_identifier, None, None)
        self._long.in_portions(self._refuse_all(packet, asked, reason), lambda: self._refused(asked, why))

    def _refuse_all(self, packet: Subscribe | ExcessiveSubscribe, asked: _Asked, reason: ReasonCode) -> Iterator[int]:
        meter = Meter(CHECKS_PER_STEP)
        for request in packet.subscriptions:
            due = meter.add(weight_of_check(request.topic_filter))
            if due:
                yield due
            self._checks.parsed(request.topic_filter)
            asked.codes.append(reason)

    def _refused(self, asked: _Asked, why: str) -> None:
        answer = Suback(asked.packet_identifier, bytes(asked.codes))
        if not self._long.can_answer(answer):
            return
        link = self._link
        link.client_log.info("its SUBSCRIBE is refused", why)
        link.acknowledgements.send_when_committed(
            COMMITTED, link.explanations.encode(answer, why), link.close_after_failure
        )

    # --- checks

    def _check_all(self, packet: Subscribe, asked: _Asked) -> Iterator[int]:
        """Check each Topic Filter, and ask the authorizer about it. Nothing changes yet."""
        limits, link = self._limits, self._link
        known, wanted = self._session.subscriptions, asked.wanted
        most, new = limits.max_subscriptions, 0
        patterns = _Patterns(known.patterns, limits.max_wildcard_patterns)
        authorizer = self._parts.authorizer
        effort = authorizer.effort
        meter = Meter(CHECKS_PER_STEP)
        for number, request in enumerate(packet.subscriptions):
            due = meter.add(weight_of_check(request.topic_filter)) + authorizer.effort - effort
            if due:
                yield due
                effort = authorizer.effort
                if link.is_closed:
                    return
            if limits.queue_subscription and request.topic_filter.startswith(QUEUE_PREFIX):
                request = self._checks.without_queue(request)
            key = request.topic_filter
            if key == REPLAY_END_TOPIC:
                self._look_up_changes(asked)
            refused = self._checks.refusal(request)
            is_explained = False
            if refused is None and key[0] == "$" and is_of_past(split_shared(key)[1]):
                refused = self._refusal_of_past(asked, number, key)
                is_explained = refused is not None
            is_new = refused is None and key not in known and key not in wanted
            if is_new and ((most is not None and len(known) + new >= most) or not patterns.take(key)):
                if link.protocol_version == 3:  # it has no code for a failure
                    link.close(ReasonCode.QUOTA_EXCEEDED, explain_refusals((ReasonCode.QUOTA_EXCEEDED,), limits))
                    return
                refused = ReasonCode.QUOTA_EXCEEDED
            if refused is not None:
                asked.codes.append(refused)
                if not is_explained:
                    asked.unexplained.add(refused)
                continue
            topic_filter = split_shared(key)[1]
            answer: Grant | Deferred[Grant] = Grant.GRANTED
            if not is_granted_to_all(key):
                answer = authorizer.may_subscribe(self._session.principal, behind_time(topic_filter), request.qos)
            if isinstance(answer, Deferred):
                wanted.setdefault(key, None)  # keeps the order of the filters
                answer.addErrback(self._denied_by_error)
                asked.waiting.append(answer.addCallback(partial(self._judged, asked, number, request)))
                asked.codes.append(ReasonCode.NOT_AUTHORIZED)  # replaced if the answer allows the subscription
                new += is_new
            else:
                asked.codes.append(ReasonCode.NOT_AUTHORIZED)
                looking = self._judged(asked, number, request, answer)
                if looking is not None:
                    asked.waiting.append(looking)
                new += is_new and answer is not Grant.REFUSED

    def _judged(self, asked: _Asked, number: int, request: SubscriptionRequest, grant: Grant) -> Deferred[None] | None:
        """Take the authorizer's answer about the request with this number. Of the past, look into the history."""
        if grant is Grant.REFUSED:
            self._parts.counters.subscriptions_not_authorized += 1
            self._parts.denied(self._session.principal, "subscribe", split_shared(request.topic_filter)[1])
            self._link.client_log.warn("may not subscribe to this", "{}", request.topic_filter)
            return None
        key = request.topic_filter
        before = asked.wanted.get(key)
        replayed = self._wants_replay(request) and not self._is_denied(key)
        if replayed and self._parts.retained.refuses_replays:
            asked.codes[number] = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
            asked.unexplained.add(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
            return None
        asked.wanted[key] = _Wanted(
            request, replayed or (before is not None and before.replayed), grant is Grant.FILTERED
        )
        asked.codes[number] = min(request.qos, self._limits.max_qos_allowed)
        past = asked.pasts.get(number)
        return None if past is None or not replayed else self._look(asked, number, key, past)

    def _refusal_of_past(self, asked: _Asked, number: int, key: str) -> ReasonCode | None:
        """Return why a Topic Filter below ``$history`` is refused, or None and note what it asks for."""
        past = self._parts.replays.past
        try:
            wanted = past_filter(key, self._parts.now())
            wanted.check_order()
        except BadRequest as bad:
            asked.note(str(bad))
            return ReasonCode.TOPIC_FILTER_INVALID
        if past is None:
            asked.note("no history is kept")
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        if len(asked.pasts) == MOST_IN_SUBSCRIBE:
            asked.note(f"a SUBSCRIBE has at most {MOST_IN_SUBSCRIBE} Topic Filters below $history")
            return ReasonCode.QUOTA_EXCEEDED
        asked.pasts[number] = wanted
        return None

    def _look(self, asked: _Asked, number: int, key: str, wanted: PastFilter) -> Deferred[None]:
        """Refuse a subscription whose time the history does not have."""

        def failed(failure: Failure) -> None:
            failure.trap(HistoryUnavailable, StorageFailure)
            asked.wanted.pop(key, None)
            asked.codes[number] = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
            asked.note(failure.getErrorMessage())

        past = self._parts.replays.past
        assert past is not None  # else the Topic Filter was refused
        return past.check(self._session.client_id, wanted).addErrback(failed)

    def _denied_by_error(self, failure: Failure) -> Grant:
        self._link.client_log.error("authorizing it failed", failure.getErrorMessage())
        return Grant.REFUSED

    # --- granting

    def _checked(self, asked: _Asked) -> None:
        """Grant the allowed subscriptions once the authorizer has answered."""
        if not self._long.can_answer(Suback(asked.packet_identifier, bytes(len(asked.codes)))):
            return
        if asked.waiting:
            together: Deferred[list[None]] = gatherResults(asked.waiting)
            self._link.ask(together, [], lambda _: self._grant(asked))
        else:
            self._grant(asked)

    def _grant(self, asked: _Asked) -> None:
        self._long.in_portions(self._grant_all(asked), lambda: self._granted(asked))

    def _grant_all(self, asked: _Asked) -> Iterator[int]:
        """Store the allowed subscriptions, and begin their replays."""
        if asked.ends is None and (REPLAY_END_TOPIC in asked.wanted or REPLAY_END_TOPIC in self._session.subscriptions):
            asked.ends = ReplayEnds(None, self._session)
        if asked.ends is not None:
            yield from asked.ends.find_carrier(asked.wanted)
        for key, wanted in asked.wanted.items():
            yield weight_of_check(key)
            if (
                wanted is not None
                and wanted.replayed
                and PUBLISHER_FACT in asked.facts
                and _NOT_TOLD not in asked.notes
            ):
                yield from self._check_publishers(asked, key)
            if self._link.is_closed:  # its Session may have ended
                return
            if wanted is None:
                continue
            subscription = self._subscription(wanted, asked)
            replayed = wanted.replayed
            if replayed:
                position = self._replays.new_position()
                position.facts = asked.facts
                if not is_of_past(key):
                    position.since = asked.since.turn
                position.marker = self._marker_of_replay(asked, key)
                asked.tickets.add(self._parts.registry.subscribe(self._session, key, subscription, position.progress))
                self._replays.begin(key, position)
                if is_sys(key):
                    asked.own.append(key)
            else:
                self._continue(asked, key, subscription)

    def _continue(self, asked: _Asked, key: str, subscription: Subscription) -> None:
        """Store a subscription without a new replay. The present one, if any, continues under the new options."""
        session = self._session
        before = session.subscriptions.get(key)
        is_queued_alike = before is not None and (before.qos, before.no_local) == (
            subscription.qos,
            subscription.no_local,
        )
        self._replays.reread(key, is_queued_alike)
        marker = None if asked.ends is None else self._marker(asked, key, False)
        position = session.replay_positions.get(key)
        if position is not None:
            position.facts = asked.facts
        if marker is not None:
            position = self._replays.mark_end(key, marker)
        progress = None if position is None else position.progress
        asked.tickets.add(self._parts.registry.subscribe(session, key, subscription, progress))
        if marker is not None and position is not None:
            self._replays.begin_marked(key, position)

    def _marker(self, asked: _Asked, key: str, replayed: bool) -> PendingMarker | None:
        """Return the marker that is due for a Subscription, None for none."""
        assert asked.ends is not None
        marker = asked.ends.marker(key, replayed)
        if marker is not None and replayed and not is_of_past(key):
            marker.token, marker.since = asked.since.token, asked.answer
        return marker

    def _marker_of_replay(self, asked: _Asked, key: str) -> PendingMarker | None:
        """Return the marker of a new replay: one that is asked for now, or one that is still due."""
        replayed = not is_sys(key)
        marker = None if asked.ends is None else self._marker(asked, key, replayed)
        if marker is not None:
            return marker
        due = self._replays.due_marker(key)
        if due is None:
            return None
        # A Client that has asked for changes has to know whether these are all messages now.
        since = asked.answer or (FULL if due.since else "")
        return due.anew(replayed=replayed, token=asked.since.token, since=since)

    def _granted(self, asked: _Asked) -> None:
        """Answer with SUBACK."""
        if self._parts.authorizer.epoch != asked.epoch:  # a walk may have passed this Session meanwhile
            self._parts.registry.grants.renew(self._session)
            if self._link.is_closed:
                return
        self._replays.share_window()
        codes = bytes(asked.codes)
        ticket = asked.tickets.ticket()
        if not self._v5:
            codes = codes.translate(_CODES_OF_MQTT_3)
        note = "; ".join(filter(None, ["" if asked.ends is None else asked.ends.note, *asked.notes]))
        properties = Properties(user_properties=((REPLAY_SINCE, asked.answer),)) if asked.answer else NO_PROPERTIES
        self._answer(asked, codes, properties, ticket, note)
        # The broker's own topics are not in the retained store, so no replay brings their values.
        if asked.own:
            self._link.acknowledgements.call_after_answers(partial(self._send_own_topics, ticket, asked.own))

    def _check_publishers(self, asked: _Asked, topic_filter: str) -> Iterator[int]:
        """Note for the Reason String if the publishers of a Topic Filter are not told, in a step of long work."""
        authorizer = self._parts.authorizer
        effort = authorizer.effort
        subscriber = Subscriber(authorizer, self._session.principal)
        if not (self._limits.tell_publishers and subscriber.may_know_publishers(topic_filter)):
            asked.note(_NOT_TOLD)
        yield 1 + authorizer.effort - effort

    def _subscription(self, wanted: _Wanted, asked: _Asked) -> Subscription:
        request = wanted.request
        group, topic_filter = split_shared(request.topic_filter)
        if asked.conflate and group is not None:
            asked.note(_NOT_CONFLATED)
        return Subscription(
            topic_filter,
            min(request.qos, self._limits.max_qos_allowed),
            request.no_local
            or (self._limits.ignore_loop_deliver and not self._v5)
            or (self._link.bridge and group is None),  # its own messages would come back to the other broker
            request.retain_as_published or self._link.bridge,
            request.retain_handling,
            asked.identifier,
            group,
            wanted.filtered,
            asked.conflate if group is None else 0,
        )

    def _wants_replay(self, request: SubscriptionRequest) -> bool:
        """Tell whether the subscription asks for retained messages [MQTT5-3.3.1-9] to [MQTT5-3.3.1-11].

        A shared subscription never does. Retain Handling 1 asks for them only if the subscription is new, 2 never. A
        disabled retainer has none; only the broker's own topics and the past are there.
        """
        if request.topic_filter.startswith(SHARED_PREFIX):
            return False
        if not (
            self._parts.retained.admission.enabled or is_sys(request.topic_filter) or is_of_past(request.topic_filter)
        ):
            return False
        is_new = request.topic_filter not in self._session.subscriptions
        if is_granted_to_all(request.topic_filter):  # nothing is retained there
            return False
        return request.retain_handling == 0 or (request.retain_handling == 1 and is_new)

    def _is_denied(self, topic_filter: str) -> bool:
        """Tell whether ``mqtt.min_replay_levels`` forbids to replay this Topic Filter; log and count it then."""
        least = self._limits.min_replay_levels
        if not least or not has_wildcard(topic_filter) or is_sys(topic_filter):
            return False
        if levels_before_wildcard(behind_time(topic_filter)) >= least:
            return False
        self._parts.counters.replays_denied += 1
        self._link.client_log.info(
            "gets live messages only", f"for {{}}: mqtt.min_replay_levels is {least}", topic_filter
        )
        return True

    def _answer(self, asked: _Asked, codes: bytes, properties: Properties, ticket: CommitTicket, note: str) -> None:
        """Send SUBACK once the subscriptions are durable. The note explains all codes but the unexplained ones.

        There may be 250,000 codes, so no loop looks at them one by one.
        """
        link = self._link
        suback = Suback(asked.packet_identifier, codes, properties)
        if self._v5 and not codes.isascii():  # some are failures: 0x80 or more
            if ReasonCode.NOT_AUTHORIZED in codes:
                asked.unexplained.add(ReasonCode.NOT_AUTHORIZED)
            told = explain_refusals(asked.unexplained, self._limits)
            answer = link.explanations.encode_within(suback, "; ".join(filter(None, (told, note))))
        elif note or suback.properties is not NO_PROPERTIES:
            answer = link.explanations.encode_within(suback, note)
        else:
            answer = encode(suback, link.protocol_version)

        def failed(failure: StorageFailure) -> bytes | None:
            if not self._v5:
                link.close_after_failure(failure)
                return None
            least = failure_reason(failure)
            refused = codes.translate(bytes(max(code, least) for code in range(256)))
            return link.explanations.encode(
                Suback(suback.packet_identifier, refused), "the broker cannot store this now"
            )

        link.acknowledgements.send_when_committed(ticket, answer, failed)

    def _send_own_topics(self, ticket: CommitTicket, own: list[str]) -> None:
        """Send the present values of the broker's own topics, after the SUBACK that grants these subscriptions."""
        if ticket.failure is None:
            told = self._parts.sys_topics.tell(self._session, self._link, own)
            done = self._parts.long_work.do(self._session.client_id, told)
            if done is not None:
                done.addErrback(self._link.close_after_error)


# Which markers a SUBSCRIBE asks for, and which Subscription of the Client carries them.


class IGranted(Protocol):
    """A Subscription that is granted, or about to be."""

    @property
    def filtered(self) -> bool:
        """Whether the authorizer is asked about each topic."""


class ReplayEnds:
    """The markers of one SUBSCRIBE.

    ``topic`` is the Topic Name that it asks for, None for none. A Subscription to ``$replay/end`` asks for markers
    there. A marker is sent only where a Subscription of the Client matches [MQTT5-3.3.2-3]: its *carrier*. One that the
    authorizer judges by topic (filtered) is no carrier, unless it names the topic.
    """

    def __init__(self, topic: str | None, session: Session) -> None:
        self._topic = topic
        self._session = session
        self._carrier: str | None = None
        self.note = ""  #: for the Reason String

    def find_carrier(self, granted: Mapping[str, IGranted | None]) -> Iterator[int]:
        """Find the carrier, in steps, among the present Subscriptions and those that are ``granted`` now.

        ``granted`` has None for Topic Filters that are refused.
        """
        subscriptions = self._session.subscriptions
        if self._topic is not None:
            if granted.get(self._topic) is not None or self._topic in subscriptions:
                self._carrier = self._topic
            else:
                yield from self._search(self._topic, granted)
            if self._carrier is None:
                self.note = f"no marker: no subscription matches the topic in {REPLAY_END_PROPERTY}"
        if self._carrier is None and (REPLAY_END_TOPIC in granted or REPLAY_END_TOPIC in subscriptions):
            self._topic = self._carrier = REPLAY_END_TOPIC

    def marker(self, key: str, replayed: bool) -> PendingMarker | None:
        """Return the marker for a Subscription, None if none is asked for."""
        if self._topic is None or self._carrier is None or key == REPLAY_END_TOPIC:
            return None
        return PendingMarker(self._topic, self._carrier, replayed)

    def _search(self, topic: str, granted: Mapping[str, IGranted | None]) -> Iterator[int]:
        present = tuple(self._session.subscriptions.items())
        is_match, meter = matching(topic), Meter(COMPARED_PER_STEP)
        for key, found in chain(((key, granted.get(key) or before) for key, before in present), granted.items()):
            due = meter.add(weight_of_comparison(key))
            if due:
                yield due
            if found is None or found.filtered or key.startswith(SHARED_PREFIX):
                continue
            if is_match(key):
                self._carrier = key
                return
