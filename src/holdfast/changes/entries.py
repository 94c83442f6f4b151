"""Entries of the history: the rows of the table ``retained_history``, and the events that they describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from attrs import frozen

from holdfast.core.messages import STORED_ENTRY, ChangeKind, ChangeOrigin, RetainedMessage
from holdfast.core.topics import EVERY_TOPIC, TopicTree, covers, overlap
from holdfast.retained.store.rows import Row, unexpired
from holdfast.storage.revisions import time_of
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties

# The rules of the history: which topics are recorded, and for how long their changes are kept.
#
# How it works. Rules belong to a period (:mod:`.periods`), and never change within it: other rules begin a new period.
# They stand in the database, so that commands that write without a broker obey them too. As for policies, the first
# rule whose Topic Filter matches a topic applies. An example:
#
#     plant/+/alarm   31536000000    kept for a year
#     plant/#         0              not recorded
#
#     plant/7/alarm   is recorded, and kept for a year
#     plant/7/speed   is not recorded
#     office/light    matches no rule: recorded, and kept for ``retainer.history.keep``
#
# The *depth* of a topic is the time for which its changes are kept, in milliseconds; :data:`GENERAL` is the general
# one, :data:`NOT_RECORDED` is none. Pruning takes each depth of a period by itself, so the configuration allows few of
# them.


#: The depth of topics without a rule of their own.
GENERAL = None
#: The depth of topics that are not recorded.
NOT_RECORDED = 0
#: The depth of topics whose changes are kept for ever, in milliseconds.
FOREVER = 2**52
#: Topics whose depths are remembered, and the most characters of such a topic.
_REMEMBERED = 16_384
_LONGEST = 256

Depth = int | None


class Rule(NamedTuple):
    """A Topic Filter, and the depth of the topics that it matches."""

    topic_filter: str
    depth: Depth


@frozen
class LeftOut:
    """Which topics of a Topic Filter are left out of an answer.

    ``filters`` are the Topic Filters of their rules, ``#`` for topics without a rule. ``everything`` says that no topic
    is left.
    """

    filters: tuple[str, ...] = ()
    everything: bool = False


class Rules:
    """Finds the depth of a topic."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = _needed(rules)
        #: the depths of the rules in their order, without :data:`GENERAL` and :data:`NOT_RECORDED`
        self.depths = tuple(sorted({rule.depth for rule in self.rules if rule.depth}))
        #: whether some topics are not recorded
        self.excludes = any(rule.depth == NOT_RECORDED for rule in self.rules)
        #: how the database has them; None for no rules
        self.text = json.dumps(self.rules, ensure_ascii=False, separators=(",", ":")) if self.rules else None
        self.digest = None if self.text is None else sha256(self.text.encode()).hexdigest()[:16]
        self._tree: TopicTree[int, Depth] = TopicTree()
        for number, rule in enumerate(self.rules):
            self._tree.add(rule.topic_filter, number, rule.depth)
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._find)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def depth_of(self, topic: str) -> Depth:
        """Return the depth of a topic."""
        if not self.rules:
            return GENERAL
        return self._remembered(topic) if len(topic) <= _LONGEST else self._find(topic)

    def records(self, topic: str) -> bool:
        """Tell whether a topic is recorded."""
        return self.depth_of(topic) != NOT_RECORDED

    def depths_in(self, topic_filter: str) -> list[tuple[str, Depth]]:
        """Return the rules that may apply to topics of a Topic Filter, and ``#`` for the topics without a rule."""
        found: list[tuple[str, Depth]] = []
        for rule in self.rules:
            if topic_filter == EVERY_TOPIC or overlap(rule.topic_filter, topic_filter):
                found.append(rule)
                if topic_filter != EVERY_TOPIC and covers(rule.topic_filter, topic_filter):
                    return found
        return [*found, ("#", GENERAL)]

    def left_out(self, topic_filter: str, hides: Callable[[Depth], bool]) -> LeftOut:
        """Return which topics of a Topic Filter are left out if those of some depths are."""
        found = self.depths_in(topic_filter)
        hidden = tuple(dict.fromkeys(name for name, depth in found if hides(depth)))
        return LeftOut(hidden, all(hides(depth) for _, depth in found))

    def _find(self, topic: str) -> Depth:
        found = self._tree.match(topic)
        return min(found, key=_number)[1] if found else GENERAL


def _number(found: tuple[int, Depth]) -> int:
    return found[0]


def _needed(rules: Iterable[Rule]) -> Sequence[Rule]:
    """Return the rules up to the last one whose depth is not the general one: later ones change nothing."""
    kept = list(rules)
    while kept and kept[-1].depth is GENERAL:
        kept.pop()
    return tuple(kept)


NO_RULES = Rules()


@lru_cache(maxsize=32)
def rules_in(text: str | None) -> Rules:
    """Return the rules that the database has as a text."""
    if text is None:
        return NO_RULES
    return Rules(Rule(topic_filter, depth) for topic_filter, depth in json.loads(text))


# The rules that tell a topic's retained message from its entries; the broker and the pipeline share them.
#
# Each rule is written once, here, as a Python function or as SQL text. The broker's databases and Spark both understand
# the SQL. An example, with revisions cut to their time::
#
#     seq  topic  op      origin    changed_at  expires_at  revision
#       7  a      set     baseline       9_000        NULL     5_000
#       8  b      set     publish        9_500      10_000     9_500
#       9  a      set     override       9_900      12_000     5_000
#
# At 11_000 topic ``a`` has a retained message, and it was stored at 5_000: entries 7 and 9 were written later than the
# message, so ``changed_at`` is not its time. Topic ``b`` has none, because its message expired at 10_000.


#: The origins of entries that are written for a message that was stored before: their revision tells when.
STORED_BEFORE = (ChangeOrigin.BASELINE, ChangeOrigin.OVERRIDE)

_STORED_BEFORE_SQL = ", ".join(f"'{origin.value}'" for origin in STORED_BEFORE)


def stored_at_of(origin: ChangeOrigin, changed_at: int, revision: int) -> int:
    """Return when the message of a "set" entry was stored, in milliseconds since the epoch."""
    return time_of(revision) if origin in STORED_BEFORE else changed_at


def stored_at_sql(revision_time: str) -> str:
    """Return :func:`stored_at_of` as SQL; ``revision_time`` is the SQL for the time in the column ``revision``."""
    return f"CASE WHEN origin IN ({_STORED_BEFORE_SQL}) THEN {revision_time} ELSE changed_at END"


def retained_sql(at: str) -> str:
    """Return the SQL that tells whether an entry's message was still retained at a time; ``at`` is SQL too.

    The entry must be the newest of its topic at that time.
    """
    return f"(op = '{ChangeKind.SET.value}' AND {unexpired(at)})"


#: The bytes that ``retainer.history.max_bytes`` counts for an entry beside its payload, topic and properties.
ENTRY_OVERHEAD = STORED_ENTRY
#: The counted bytes of a row of ``retained`` or ``retained_history``, as SQL.
WEIGHT = f"size + length(topic) + length(properties5) + {ENTRY_OVERHEAD}"


class Entry(NamedTuple):
    """One row of the table, with the columns in the table's order. Only a "set" has a payload and properties."""

    seq: int
    topic: str
    op: str
    origin: str
    qos: int
    size: int
    changed_at: int
    expires_at: int | None
    revision: int
    client_id: str | None
    username: str | None
    properties5: bytes
    properties_json: str | None
    payload: bytes
    operator: str | None

    @property
    def weight(self) -> int:
        """The bytes that ``retainer.history.max_bytes`` counts."""
        return self.size + len(self.topic) + len(self.properties5) + ENTRY_OVERHEAD


@frozen
class HistoryEvent:
    """One recorded change of a topic's retained message.

    ``seq`` orders all changes. ``changed_at`` and ``expires_at`` (None for never) are in milliseconds since the epoch;
    ``changed_at`` never decreases from one event to the next. ``client_id`` and ``username`` are the publisher's;
    ``operator`` is the caller of the API in a set, a clear or a restore. A message that was retained before the
    history began has the origin BASELINE. :func:`retained_by` tells when the message of an event was stored.
    """

    seq: int
    kind: ChangeKind
    origin: ChangeOrigin
    topic: str
    payload: bytes
    qos: int
    properties: Properties
    client_id: str | None
    username: str | None
    changed_at: int
    expires_at: int | None
    revision: int
    operator: str | None = None


def entry_of(row: Row, changed_at: int, origin: ChangeOrigin, operator: str | None = None) -> Entry:
    """Return the entry for a row of ``retained``, without a position yet.

    ``changed_at`` is the time of the change in this store, in milliseconds since the epoch. The row of an imported
    message has the time of its first store.
    """
    return Entry(
        0, row.topic, (ChangeKind.CLEAR if row.tombstone else ChangeKind.SET).value, origin.value, row.qos, row.size,
        changed_at, row.expires_at, row.revision, row.client_id, row.username, row.properties5, row.properties_json,
        row.payload, operator,
    )  # fmt: skip


def expiry_of(topic: str, now: int, revision: int) -> Entry:
    """Return the entry for a message that the sweep has removed."""
    return Entry(
        0, topic, ChangeKind.EXPIRE.value, ChangeOrigin.EXPIRY.value, 0, 0, now, None, revision, None, None, b"", None,
        b"", None,
    )  # fmt: skip


def event_of(columns: tuple[Any, ...]) -> HistoryEvent:
    """Return the event of a row of the table."""
    entry = Entry(*columns)
    properties = NO_PROPERTIES if entry.properties5 in (b"", b"\0") else decode_properties(entry.properties5)
    return HistoryEvent(
        entry.seq,
        ChangeKind(entry.op),
        ChangeOrigin(entry.origin),
        entry.topic,
        entry.payload,
        entry.qos,
        properties,
        entry.client_id,
        entry.username,
        entry.changed_at,
        entry.expires_at,
        entry.revision,
        entry.operator,
    )


def retained_by(event: HistoryEvent) -> RetainedMessage:
    """Return the retained message of an event of the kind SET."""
    stored_at = stored_at_of(event.origin, event.changed_at, event.revision)
    return RetainedMessage(
        event.topic, event.payload, event.qos, event.properties, event.client_id, event.username, stored_at,
        event.expires_at, event.revision,
    )  # fmt: skip
