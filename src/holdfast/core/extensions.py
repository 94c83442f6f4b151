"""Holdfast's own requests: User Properties and ``$`` topics, their names, and how the values of a client are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from attrs import frozen

from holdfast.core.strict_json import BadJSON, read_json
from holdfast.core.topics import (
    ASK_COUNT,
    ASK_GET,
    ASK_TREE,
    CHANGES_PREFIX,
    PAST_PREFIX,
    REPLAY_END_TOPIC,
    SHARED_PREFIX,
    InvalidTopicFilter,
    InvalidTopicName,
    behind_time,
    check_topic_filter,
    check_topic_name,
)
from holdfast.wire import Properties

# The names of Holdfast's User Properties, and the features that CONNACK tells a participant of.
#
# Apart from :data:`PARTICIPATION`, they count only on the connections of participants.


#: in CONNECT and CONNACK
PARTICIPATION = "holdfast"
#: all other names begin so
PREFIX = "holdfast-"
#: in SUBSCRIBE: the Topic Name for the marker of the end of each replay
REPLAY_END_PROPERTY = "holdfast-replay-end"
#: in SUBSCRIBE: what to tell of each replayed message
REPLAY_INFO = "holdfast-replay-info"
#: in SUBSCRIBE: replay only what has changed since this token or time; in SUBACK and markers: whether that is done
REPLAY_SINCE = "holdfast-replay-since"
#: in SUBSCRIBE: the least time between two messages of a topic, in milliseconds
CONFLATE = "holdfast-conflate"
#: in PUBLISH: the conditions of a compare-and-set
IF_REVISION = "holdfast-if-revision"
IF_ABSENT = "holdfast-if-absent"
IF_PAYLOAD_SHA256 = "holdfast-if-payload-sha256"
#: in PUBLISH: until when the retained message stays
RETAIN_WHILE = "holdfast-retain-while"
#: in PUBLISH packets that the broker sends; the revision also in the acknowledgement of a compare-and-set
STORED_AT = "holdfast-stored-at"
REVISION = "holdfast-revision"
PUBLISHER = "holdfast-publisher"

#: What only the broker tells. A participant that publishes one of them is refused.
TOLD_BY_BROKER = frozenset({STORED_AT, REVISION, PUBLISHER})

#: the version of these agreements
VERSION = 1
#: the features, in the order of CONNACK
OFFERED = ("replay-end", "replay-since", "replay-info", "conflate", "compare-and-set", "ask", "history", "retain-while")


UserProperties = Sequence[tuple[str, str]]


# The refusal of a request in User Properties.


class BadRequest(Exception):
    """A request is given twice, or is not understood. The text names the property, and what is allowed."""


# How a client agrees to take part: User Property ``holdfast`` = ``?`` in CONNECT, answered in CONNACK.


#: what a client sends
QUESTION = "?"
#: what CONNACK answers
ANSWER = (PARTICIPATION, f"{VERSION} {','.join(OFFERED)}")


def takes_part(connect: Properties) -> bool:
    """Tell whether a client asks to take part. Raises :class:`BadRequest` if it asks twice, or for something else."""
    values = [value for name, value in connect.user_properties if name == PARTICIPATION]
    if len(values) > 1:
        raise BadRequest(f"User Property {PARTICIPATION} is given {len(values)} times, and once is allowed")
    if values and values[0] != QUESTION:
        raise BadRequest(f"User Property {PARTICIPATION} can only be {QUESTION} in CONNECT")
    return bool(values)


# Times in requests of clients: ISO 8601 ending in ``Z``, milliseconds since the epoch, or how long ago.


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"-([0-9]{1,9})([smhd])")
_MILLISECONDS = re.compile(r"[0-9]{12,15}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z")


def moment_in(text: str, now: int) -> int:
    """Return the time of a text. The result and ``now`` are in milliseconds since the epoch.

    Raises :class:`BadRequest`.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    if ago := _AGO.fullmatch(text):
        return max(0, now - 1000 * int(ago[1]) * _SECONDS[ago[2]])
    try:
        if _DATE.fullmatch(text):
            return max(0, round(1000 * datetime.fromisoformat(text).timestamp()))
    except (ValueError, OverflowError):
        pass  # such as the 31st of February
    raise BadRequest("a time is like 2026-11-21T10:00:00Z, -90s, -15m, -1h or -2d, or milliseconds since the epoch")


# The conditions of a PUBLISH: the message is stored only if the present retained message of its topic meets them.


#: revisions are signed integers of 64 bits in the databases
HIGHEST_REVISION = 2**63 - 1
_REVISION = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


@frozen
class Conditions:
    """All that are given must hold.

    ``revision`` is that of the present message, 0 for no message. ``absent``: there is none. ``payload_sha256`` is the
    digest of the present payload, in lower-case hexadecimal digits. ``present``: there is a message; only the broker
    itself asks for that.
    """

    revision: int | None = None
    absent: bool = False
    payload_sha256: str | None = None
    present: bool = False

    @property
    def may_hold_without_message(self) -> bool:
        """Whether the conditions hold if the topic has no message."""
        return not self.revision and self.payload_sha256 is None and not self.present


def _conditions_of(found: dict[str, str]) -> Conditions | None:
    revision, digest = found.get(IF_REVISION), found.get(IF_PAYLOAD_SHA256)
    if revision is not None and not (_REVISION.fullmatch(revision) and int(revision) <= HIGHEST_REVISION):
        raise BadCondition(f"User Property {IF_REVISION} is a whole number from 0 to {HIGHEST_REVISION}")
    if found.get(IF_ABSENT):
        raise BadCondition(f"User Property {IF_ABSENT} has an empty value")
    if digest is not None and not _SHA256.fullmatch(digest):
        raise BadCondition(f"User Property {IF_PAYLOAD_SHA256} has 64 hexadecimal digits")
    if CONDITIONS.isdisjoint(found):
        return None
    return Conditions(
        None if revision is None else int(revision), IF_ABSENT in found, None if digest is None else digest.lower()
    )


# The lease of a PUBLISH with RETAIN 1: how long its retained message stays.


class LeaseTerm(Enum):
    """Until when a message stays: its publisher's Session ends, or its publisher is away for the time of grace."""

    SESSION = "session"
    CONNECTED = "connected"


def _lease_of(text: str | None) -> LeaseTerm | None:
    if text is None:
        return None
    try:
        return LeaseTerm(text)
    except ValueError:
        allowed = " or ".join(term.value for term in LeaseTerm)
        raise BadRequest(f"User Property {RETAIN_WHILE} is {allowed}") from None


# The requests of a PUBLISH in its User Properties.


class ToldByBroker(BadRequest):
    """A PUBLISH has a User Property that only the broker tells."""


class BadCondition(BadRequest):
    """A condition of a PUBLISH is given twice, or is not understood."""


CONDITIONS = frozenset({IF_REVISION, IF_ABSENT, IF_PAYLOAD_SHA256})
FOR_PUBLISH = CONDITIONS | {RETAIN_WHILE}


@frozen
class PublishRequests:
    """What a PUBLISH asks for; None for what it does not."""

    conditions: Conditions | None = None
    lease: LeaseTerm | None = None


NO_PUBLISH_REQUESTS = PublishRequests()


def publish_requests(properties: UserProperties) -> PublishRequests:
    """Return the requests of a PUBLISH.

    Raises :class:`ToldByBroker`, :class:`BadRequest` for another name that is not offered or for a lease, and else
    :class:`BadCondition`. A name that is not offered is refused: a message whose condition has a misspelt name would be
    stored without any condition.
    """
    names = [name for name, _ in properties if name.startswith(PREFIX)]
    if not names:
        return NO_PUBLISH_REQUESTS
    for name in names:
        if name in TOLD_BY_BROKER:
            raise ToldByBroker(f"User Property {name} is told by the broker only")
    for name in names:
        if name not in FOR_PUBLISH:
            raise _not_offered(name, "PUBLISH", FOR_PUBLISH)
    for name in (RETAIN_WHILE, *names):  # a lease that is given twice is told first
        if names.count(name) > 1:
            kind = BadCondition if name in CONDITIONS else BadRequest
            raise kind(f"User Property {name} is given more than once")
    found = {name: value for name, value in properties if name in FOR_PUBLISH}
    lease = _lease_of(found.get(RETAIN_WHILE))
    return PublishRequests(_conditions_of(found), lease)


# Topic Filters of the past.
#
# ``$history/at/TIME/FILTER`` stands for the retained messages of a time, ``$history/changes/FROM/TO/FILTER`` for the
# changes between two times.


#: The most Topic Filters of the past in one SUBSCRIBE: each costs a look into the history before SUBACK.
MOST_IN_SUBSCRIBE = 8


@frozen
class PastFilter:
    """A Topic Filter of the past: ``prefix`` with its times as they were written, and the filter behind it.

    It asks for the retained messages of the time ``at``, or for the changes after ``since`` and up to ``at``. Times are
    in milliseconds since the epoch. ``since`` is None where no changes are asked for.
    """

    prefix: str
    at: int
    topic_filter: str
    since: int | None = None

    def check_order(self) -> None:
        """Raise :class:`BadRequest` if the first time is later than the second one.

        That is checked once, when a Client asks. Later "-0s" may be after a time that was in the future then.
        """
        if self.since is not None and self.since > self.at:
            raise BadRequest(f"in {CHANGES_PREFIX}FROM/TO/FILTER, FROM is not later than TO")


def past_filter(text: str, now: int) -> PastFilter:
    """Return what a Topic Filter below ``$history`` asks for. Raises :class:`BadRequest`."""
    inner = behind_time(text)
    if inner == text or inner.startswith("$share/"):
        raise BadRequest(
            f"below $history, Topic Filters are {PAST_PREFIX}TIME/FILTER or {CHANGES_PREFIX}FROM/TO/FILTER"
        )
    prefix = text.removesuffix(inner)
    if prefix.startswith(PAST_PREFIX):
        return PastFilter(prefix, moment_in(prefix.removeprefix(PAST_PREFIX).removesuffix("/"), now), inner)
    begin, end = prefix.removeprefix(CHANGES_PREFIX).removesuffix("/").split("/")
    since, at = moment_in(begin, now), moment_in(end, now)
    return PastFilter(prefix, at, inner, since)


# Questions about retained messages: what a Client publishes to ``$retained/get``, ``count`` and ``tree``.


#: The longest payload of a question, in bytes: two of the longest topics, in base64. And the most commas in it.
LONGEST_QUESTION, _MOST_COMMAS = 176 * 1024, 1000
#: The messages or nodes of one answer: the most, and if the question does not say.
MOST_IN_ANSWER, USUAL_IN_ANSWER = 1000, 100
#: What an answer to ``$retained/get`` can tell of a message; its topic is always told.
ANSWER_FIELDS = ("topic", "payload", "qos", "size", "revision", "stored_at", "expires_at", "properties")

_ALLOWED = {
    ASK_GET: ("filter", "limit", "after", "fields"),
    ASK_COUNT: ("filter", "after"),
    ASK_TREE: ("topic", "limit", "after"),
}


@frozen
class Question:
    """One question. ``kind`` is the topic that it was published to.

    ``parent`` is the topic whose next level is asked for, None for the first level; only of ``$retained/tree``.
    ``topic_filter`` matches all that the answer may tell of. ``after`` is what an earlier answer said, "" at the
    beginning.
    """

    kind: str
    topic_filter: str
    limit: int = USUAL_IN_ANSWER
    after: str = ""
    fields: tuple[str, ...] = ANSWER_FIELDS
    parent: str | None = None


def question_of(kind: str, payload: bytes, max_levels: int) -> Question:
    """Return the question in a payload. A Topic Filter may have ``max_levels`` levels. Raises :class:`BadRequest`."""
    given = _object_of(payload)
    allowed = _ALLOWED[kind]
    for name in given:
        if name not in allowed:
            raise BadRequest(f"{name[:40]} is not known for {kind}, only {', '.join(allowed)}")
    limit = given.get("limit", USUAL_IN_ANSWER)
    if type(limit) is not int or not 1 <= limit <= MOST_IN_ANSWER:
        raise BadRequest(f"limit is a whole number, 1 to {MOST_IN_ANSWER}")
    after = _text(given, "after") or ""
    if kind == ASK_TREE:
        parent = _text(given, "topic")
        topic_filter = "#" if parent is None else f"{parent}/+/#"
        if parent is not None:
            _check_parent(parent, max_levels)
        return Question(kind, topic_filter, limit, after, parent=parent)
    topic_filter = _text(given, "filter") or ""
    if topic_filter.startswith(SHARED_PREFIX):
        raise BadRequest("filter is a Topic Filter without $share")
    try:
        check_topic_filter(topic_filter, max_levels)
    except InvalidTopicFilter as wrong:
        raise BadRequest(f"filter: {wrong}") from None
    return Question(kind, topic_filter, limit, after, _fields(given))


def _object_of(payload: bytes) -> dict[str, Any]:
    if len(payload) > LONGEST_QUESTION:
        raise BadRequest(f"the payload has at most {LONGEST_QUESTION} bytes")
    if payload.count(b",") > _MOST_COMMAS:
        raise BadRequest(f"the payload has at most {_MOST_COMMAS} commas")
    try:
        given = read_json(payload or b"{}")
    except BadJSON as wrong:
        raise BadRequest(str(wrong)) from None
    if not isinstance(given, dict):
        raise BadRequest("the payload is a JSON object")
    return given


def _text(given: dict[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} is a string")
    return value


def _check_parent(parent: str, max_levels: int) -> None:
    try:
        check_topic_name(parent, max_levels)
    except InvalidTopicName as wrong:
        raise BadRequest(f"topic: {wrong}") from None


def _fields(given: dict[str, Any]) -> tuple[str, ...]:
    wanted = given.get("fields")
    if wanted is None:
        return ANSWER_FIELDS
    if not isinstance(wanted, list) or any(one not in ANSWER_FIELDS for one in wanted):
        raise BadRequest(f"fields is a list of {', '.join(ANSWER_FIELDS)}")
    return tuple(name for name in ANSWER_FIELDS if name == "topic" or name in wanted)


# What a participant may ask to be told of each replayed message: when it was stored, its revision, its publisher.


#: what the request names; each stands for a User Property of its name behind the prefix
STORED_AT_FACT, REVISION_FACT, PUBLISHER_FACT = (name.removeprefix(PREFIX) for name in (STORED_AT, REVISION, PUBLISHER))
#: all facts, in the order of the User Properties of a message
ALL_FACTS = (STORED_AT_FACT, REVISION_FACT, PUBLISHER_FACT)

#: facts in the order of :data:`ALL_FACTS`; none for a replay that tells none
Facts = tuple[str, ...]


def facts_in(text: str) -> Facts:
    """Return the facts in a value of the User Property. Raises :class:`BadRequest`."""
    asked = text.split(",")
    if len(asked) > len(ALL_FACTS) or len(set(asked)) != len(asked) or not set(asked) <= set(ALL_FACTS):
        known = ", ".join(ALL_FACTS)
        raise BadRequest(f"User Property {REPLAY_INFO} has one or more of {known}, each once, with commas")
    return tuple(fact for fact in ALL_FACTS if fact in asked)


def text_of(facts: Facts) -> str:
    """Return the text that :func:`facts_in` reads."""
    return ",".join(facts)


# Asking for only what changed since a token or a time: the answers.


#: everything is replayed, or only what has changed
FULL, DELTA = "full", "delta"


# The requests of clients in the User Properties of SUBSCRIBE, and the names that only participants may use.


#: The longest Topic Name for markers, in bytes: it is stored with each Topic Filter of a SUBSCRIBE.
LONGEST_TOPIC = 256

#: The longest interval of conflation, in milliseconds.
LONGEST_INTERVAL = 3_600_000


@frozen
class SubscribeRequests:
    """What a SUBSCRIBE asks for. ``replay_end`` is the Topic Name for markers, None for no markers.

    ``conflate`` is the interval of conflation in milliseconds, 0 for none. ``replay_info`` is what to tell of each
    replayed message. ``replay_since`` is a token or a time, None for a replay of everything.
    """

    replay_end: str | None = None
    conflate: int = 0
    replay_info: Facts = ()
    replay_since: str | None = None


_FOR_SUBSCRIBE = frozenset({REPLAY_END_PROPERTY, REPLAY_SINCE, REPLAY_INFO, CONFLATE})
#: without facts: a client sees from each message that it is told none
NEEDING_PART_IN_SUBSCRIBE = _FOR_SUBSCRIBE - {REPLAY_INFO}

NO_REQUESTS = SubscribeRequests()


def subscribe_requests(properties: UserProperties, max_levels: int) -> SubscribeRequests:
    """Return the requests of a SUBSCRIBE. A Topic Name may have ``max_levels`` levels.

    Raises :class:`BadRequest`. A name that is not offered is refused too: CONNACK has told the client what is.
    """
    found: dict[str, str] = {}
    for name, value in properties:
        if not name.startswith(PREFIX):
            continue
        if name in found:
            raise BadRequest(f"User Property {name} is given more than once")
        if name not in _FOR_SUBSCRIBE:
            raise _not_offered(name, "SUBSCRIBE", _FOR_SUBSCRIBE)
        found[name] = value
    if not found:
        return NO_REQUESTS
    facts = found.get(REPLAY_INFO)
    return SubscribeRequests(
        _marker_topic(found.get(REPLAY_END_PROPERTY), max_levels),
        _interval(found.get(CONFLATE)),
        () if facts is None else facts_in(facts),
        found.get(REPLAY_SINCE),
    )


def named(properties: UserProperties, names: frozenset[str]) -> str | None:
    """Return the first of these names that is among User Properties, None for none."""
    return next((name for name, _ in properties if name in names), None)


def check_takes_part(properties: UserProperties, requests: frozenset[str]) -> None:
    """Raise :class:`BadRequest` if one of the ``requests`` is among the properties of a client that does not take part.

    Without this, the client would take the success of its packet for that of its request. All other names are ignored.
    """
    name = named(properties, requests)
    if name is not None:
        raise BadRequest(f"User Property {name} needs User Property {PARTICIPATION} = {QUESTION} in CONNECT")


def _not_offered(name: str, packet: str, offered: frozenset[str]) -> BadRequest:
    return BadRequest(f"User Property {name[:64]} is not offered for {packet}, only {', '.join(sorted(offered))}")


def _interval(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and 1 <= int(text) <= LONGEST_INTERVAL):
        raise BadRequest(f"User Property {CONFLATE} is a number of milliseconds from 1 to {LONGEST_INTERVAL}")
    return int(text)


def _marker_topic(topic: str | None, max_levels: int) -> str | None:
    if topic is None:
        return None
    try:
        check_topic_name(topic, max_levels)
    except InvalidTopicName as wrong:
        raise BadRequest(f"User Property {REPLAY_END_PROPERTY} is a Topic Name: {wrong}") from None
    if len(topic.encode()) > LONGEST_TOPIC:
        raise BadRequest(f"User Property {REPLAY_END_PROPERTY} has at most {LONGEST_TOPIC} bytes")
    if topic.startswith("$") and topic != REPLAY_END_TOPIC:
        raise BadRequest(
            f"User Property {REPLAY_END_PROPERTY} is {REPLAY_END_TOPIC}, or a topic that does not begin with $"
        )
    return topic
