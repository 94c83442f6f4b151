"""The statements of scans, for both dialects.

How it works
------------
A scan looks at one *part* of a range: its first ``rows`` rows, matching or not. The limit stands inside the subquery,
so the cost of a statement is bounded however few rows match::

    SELECT count(*), max(topic), count(*) FILTER (WHERE wanted) ...
    FROM (SELECT topic, ..., (tombstone = 0 AND ...) AS wanted
          FROM retained WHERE topic >= :low ORDER BY topic LIMIT :rows)

Each statement returns one row. Python's SQLite driver takes the interpreter lock back for each row, and these
statements run in a thread beside the reactor's.

The walk through a level jumps. Behind a topic of the level it goes on after this topic; behind the first topic of a
name, at the first string behind all topics below the name. For ``a/``, with the topics ``a/b``, ``a/b/1``, ``a/b/2``
and ``a/c/1``, it stops at ``a/b``, ``a/b/1`` and ``a/c/1``. Each stop is one search of the primary key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from holdfast.retained.store.rows import MESSAGE_COLUMNS, unexpired
from holdfast.retained.store.statements import Fragments, below, stored_size
from holdfast.retained.store.values import Order, Search, Sorting
from holdfast.retained.store.wildcards import AFTER_SEPARATOR

# Built from constants and names of columns alone: values are always bound.
# ruff: noqa: S608

_ALIVE = f"(tombstone = 0 AND {unexpired(':now')})"
_EXPIRED = "(tombstone = 0 AND expires_at <= :now)"
#: For each condition of a Search: the column and its comparison.
_COMPARISONS = {
    "client_id": "client_id = :client_id",
    "username": "username = :username",
    "stored_from": "stored_at >= :stored_from",
    "stored_before": "stored_at < :stored_before",
    "least_size": "size >= :least_size",
    "most_size": "size <= :most_size",
}
#: The values that a filter needs that SQL cannot check: Python compares each topic.
ROW_NAMES = "topic, bytes, stored_at, size"
_BEGINNING = "substr(payload, 1, :most)"


def wanted_of(fragments: Fragments, search: Search) -> tuple[str, dict[str, Any]]:
    """Return the condition for the rows of a search, without its Topic Filter, and the bound values."""
    parts = [_EXPIRED if search.expired else _ALIVE, "(revision <= :not_after OR revision & 255 <> :node)"]
    bound: dict[str, Any] = {"now": search.now, "not_after": search.not_after, "node": search.node}
    for name, comparison in {**_COMPARISONS, "contains": fragments.contains}.items():
        value = getattr(search, name)
        if value is not None:
            parts.append(comparison)
            bound[name] = value
    return " AND ".join(parts), bound


@lru_cache(maxsize=256)
def tally(fragments: Fragments, bounded: bool, wanted: str) -> str:
    """Select the rows of a part, its last topic, and the tally of the wanted rows."""
    return f"SELECT count(*), max(topic), {_tally('wanted')} FROM ({_part(fragments, bounded, wanted)}) AS part"


@lru_cache(maxsize=256)
def topics(fragments: Fragments, bounded: bool, wanted: str) -> str:
    """Select the rows of a part, its last topic, and the wanted topics, as tuples."""
    return _listed(fragments, bounded, wanted, "topic")


@lru_cache(maxsize=256)
def rows(fragments: Fragments, bounded: bool, wanted: str) -> str:
    """Select the rows of a part, its last topic, and :data:`ROW_NAMES` of the wanted rows, as tuples."""
    return _listed(fragments, bounded, wanted, ROW_NAMES)


@lru_cache(maxsize=256)
def rank(fragments: Fragments, bounded: bool, wanted: str, by: Order, descending: bool, beyond: bool) -> str:
    """Select the rows of a part, its last topic, and the first ``limit`` places of the wanted rows, as tuples.

    With ``beyond``, only places behind ``value`` and ``topic``.
    """
    further = (
        f" AND (place {'<' if descending else '>'} :value OR (place = :value AND topic > :topic))" if beyond else ""
    )
    best = (
        f"SELECT place, topic FROM part WHERE wanted{further} "
        f"ORDER BY place{' DESC' if descending else ''}, topic LIMIT :limit"
    )
    # Materialized: the part is read once for three answers.
    return (
        f"WITH part AS MATERIALIZED (SELECT topic, {by.value} AS place, ({wanted}) AS wanted "
        f"FROM retained WHERE topic >= :low{below(bounded)} ORDER BY topic LIMIT :rows) "
        f"SELECT (SELECT count(*) FROM part), (SELECT max(topic) FROM part), "
        f"(SELECT {fragments.tuples.format('place, topic')} FROM ({best}) AS best)"
    )


def entries(fragments: Fragments, wanted: str, most: int | None) -> str:
    """Select MESSAGE_COLUMNS and the size of wanted rows among the bound ``listed`` topics.

    The payloads are cut to the bound ``most`` bytes, or empty if that is 0; None leaves them whole.
    """
    return _entries(fragments, wanted, "payload" if most is None else _BEGINNING if most else fragments.empty)


@lru_cache
def _entries(fragments: Fragments, wanted: str, payload: str) -> str:
    shown = ", ".join(MESSAGE_COLUMNS).replace("payload", payload)
    return f"SELECT {shown}, size FROM retained WHERE {_among(fragments)} AND {wanted} ORDER BY topic"


@lru_cache
def weights(fragments: Fragments, payloads: bool) -> str:
    """Select topics and their weights in bytes, of the bound ``listed`` topics, as tuples."""
    weight = f"{fragments.topic_length} + {fragments.length}(properties5){' + size' if payloads else ''}"
    return (
        f"SELECT {fragments.tuples.format('topic, weight')} "
        f"FROM (SELECT topic, {weight} AS weight FROM retained WHERE {_among(fragments)}) AS found"
    )


@lru_cache
def level(fragments: Fragments, bounded: bool) -> str:
    """Select the stops of a walk, as tuples of topic, life, bytes and time. ``first`` is the position behind the base.

    The tuples are in no order.
    """
    high = below(bounded)
    separator = fragments.separator_at.format("substr(walk.topic, :first)")
    behind = (
        f"CASE WHEN {separator} = 0 THEN walk.topic || {fragments.lowest} "
        f"ELSE substr(walk.topic, 1, :first + {separator} - 2) || '{AFTER_SEPARATOR}' END"
    )
    size = stored_size(fragments).replace("topic", "retained.topic")
    return (
        "WITH RECURSIVE walk (topic, number) AS (SELECT * FROM (SELECT topic, 1 FROM retained "
        f"WHERE topic >= :low{high} ORDER BY topic LIMIT 1) AS start UNION ALL "
        f"SELECT (SELECT topic FROM retained WHERE topic >= {behind}{high} ORDER BY topic LIMIT 1), number + 1 "
        "FROM walk WHERE walk.topic IS NOT NULL AND number < :rows) "
        f"SELECT {fragments.tuples.format('topic, alive, bytes, stored_at')} FROM (SELECT retained.topic AS topic, "
        f"{_ALIVE} AS alive, {size} AS bytes, stored_at FROM walk CROSS JOIN retained "
        "WHERE retained.topic = walk.topic) AS stops"
    )


@lru_cache
def before(fragments: Fragments) -> str:
    """Select the stop of the last topic from ``base`` up to and including ``most``, as a tuple."""
    return (
        f"SELECT {fragments.tuple.format(f'topic, {_ALIVE}, {stored_size(fragments)}, stored_at')} FROM retained "
        "WHERE topic >= :base AND topic <= :most ORDER BY topic DESC LIMIT 1"
    )


@lru_cache
def tallies_below(fragments: Fragments) -> str:
    """Select, for each of the bound ``topics`` in order, the rows looked at below it and their tally, as tuples."""
    tally_of = fragments.tuple.format(f"count(*), {_tally('alive')}")
    return fragments.for_each.format(
        f"SELECT {tally_of} FROM (SELECT {_ALIVE} AS alive, {stored_size(fragments)} AS bytes, stored_at "
        f"FROM retained WHERE topic >= item.value || '/' AND topic < item.value || '{AFTER_SEPARATOR}' "
        "ORDER BY topic LIMIT :rows) AS part"
    )


def rank_bound(sorting: Sorting) -> dict[str, Any]:
    """Return the values to bind for ``beyond``."""
    return {} if sorting.beyond is None else {"value": sorting.beyond[0], "topic": sorting.beyond[1]}


def _among(fragments: Fragments) -> str:
    return f"topic {fragments.among.format(':listed')}"


def _part(fragments: Fragments, bounded: bool, wanted: str) -> str:
    return (
        f"SELECT topic, {stored_size(fragments)} AS bytes, stored_at, size, ({wanted}) AS wanted FROM retained "
        f"WHERE topic >= :low{below(bounded)} ORDER BY topic LIMIT :rows"
    )


def _listed(fragments: Fragments, bounded: bool, wanted: str, names: str) -> str:
    return (
        f"SELECT count(*), max(topic), {fragments.tuples.format(names)} FILTER (WHERE wanted) "
        f"FROM ({_part(fragments, bounded, wanted)}) AS part"
    )


def _tally(flag: str) -> str:
    """Return the aggregates of a Tally over the rows with a flag."""
    return (
        f"count(*) FILTER (WHERE {flag}), CAST(coalesce(sum(bytes) FILTER (WHERE {flag}), 0) AS BIGINT), "
        f"max(stored_at) FILTER (WHERE {flag})"
    )
