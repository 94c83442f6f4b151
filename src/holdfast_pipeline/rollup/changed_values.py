"""Typed values from changes: each set of a matching topic is decoded once for each entry of the catalogue.

The time of a value is that of its change, ``changed_at``, unless its payload has one. Some entries repeat a message
that was stored before, for example at the beginning of a history: their values have the time of the first entry with
the same revision, or that of the revision where there is none. So a value that comes twice has one time, and counts
once. An example::

    seq  topic  op   origin    changed_at  revision       at
      4  a      set  publish        9_012  9_000 << 20    9_012
     90  a      set  baseline      12_000  9_000 << 20    9_012
     91  b      set  baseline      12_000  5_000 << 20    5_000    (stored while no history was kept)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from holdfast.changes.api import STORED_BEFORE
from holdfast.core.messages import ChangeKind
from holdfast.core.topics import matches
from holdfast.storage.api import time_of
from holdfast_pipeline.decoding.catalog import Catalog, Entry
from holdfast_pipeline.decoding.decoder import BadPayload
from holdfast_pipeline.formatting import visible

#: The most characters of a reason.
_LONGEST_REASON = 300
_MOST_TOPICS = 200_000
#: The origins of entries that repeat a message.
REPEATED = tuple(origin.value for origin in STORED_BEFORE)

#: A topic and a revision, and the time of the first entry with both, in microseconds since the epoch.
FirstTimes = Mapping[tuple[str, int], int]


@frozen
class Value:
    """A value of an entry, from the change ``seq`` on ``topic``: ``at`` microseconds since the epoch; None: cleared.

    ``part`` is its place among the values of the message. The broker may record a message twice (when it begins a
    history anew), with the same ``revision``.
    """

    entry: Entry
    topic: str
    levels: Mapping[str, str]
    at: int
    value: float | None
    seq: int
    revision: int
    part: int


@frozen
class BadValue:
    """A payload that has no value of an entry, and the reason."""

    entry: Entry
    topic: str
    seq: int
    at: int
    reason: str


@frozen
class Decoding:
    """Finds the entries with a value of topics, and remembers them for some topics."""

    catalog: Catalog
    _known: dict[str, Sequence[tuple[Entry, Mapping[str, str]]]] = field(factory=dict, init=False)

    def values(self, change: Mapping[str, Any], first_times: FirstTimes) -> Iterator[Value | BadValue]:
        """Return the values of a change: a row of the table ``changes``, with ``changed_at`` in microseconds."""
        topic, seq, revision, at = change["topic"], change["seq"], change["revision"], change["changed_at"]
        if change["origin"] in REPEATED:
            at = first_times.get((topic, revision), time_of(revision) * 1000)
        for entry, levels in self._entries(topic):
            if change["op"] != ChangeKind.SET.value:
                yield Value(entry, topic, levels, at, None, seq, revision, 0)
                continue
            assert entry.place is not None
            try:
                for part, (own, value) in enumerate(entry.place.values(topic, change["payload"])):
                    yield Value(entry, topic, levels, at if own is None else own, value, seq, revision, part)
            except BadPayload as error:
                yield BadValue(entry, topic, seq, at, visible(str(error), _LONGEST_REASON))

    def _entries(self, topic: str) -> Sequence[tuple[Entry, Mapping[str, str]]]:
        known = self._known.get(topic)
        if known is None:
            levels = topic.split("/")
            known = [
                (entry, {name: levels[place] for name, place in pattern.levels.items()})
                for entry in self.catalog.valued
                for pattern in [next((each for each in entry.patterns if matches(each.topic_filter, topic)), None)]
                if pattern is not None
            ]
            if len(self._known) >= _MOST_TOPICS:
                self._known.clear()
            self._known[topic] = known
        return known
