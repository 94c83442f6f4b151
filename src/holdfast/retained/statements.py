"""The SQL of retained messages, for SQLite: texts only, each built once per shape and prepared once per connection.

A run of packets comes as one aggregate row: Python's driver gives up and takes back its interpreter lock for every
row it steps over, and one row is one step.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from holdfast.retained.matching import Plan
from holdfast.retained.rows import COLUMNS, MESSAGE_COLUMNS

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

#: What the level counts and patterns of a plan become: a condition (with a leading AND) and what to bind for it.
Check = tuple[str, dict[str, Any]]

_PACKET = {False: "prefix3 || topic || payload", True: "prefix5 || topic || properties5 || payload"}
# Of a blob, length() reads the record's header only; size stands for the payload.
_LENGTH = {
    False: "length(prefix3) + length(CAST(topic AS BLOB)) + size",
    True: "length(prefix5) + length(CAST(topic AS BLOB)) + length(properties5) + size",
}
_COLUMNS = ", ".join(COLUMNS)
_PLACES = f"({', '.join('?' * len(COLUMNS))})"
_REPLACED = ", ".join(f"{column} = excluded.{column}" for column in COLUMNS[1:])
_GONE = (
    "tombstone = 1, qos = 0, size = 0, expires_at = NULL, client_id = NULL, username = NULL, "
    "properties_json = NULL, prefix3 = x'', prefix5 = x'', properties5 = x'', payload = x''"
)

GET = f"SELECT {', '.join(MESSAGE_COLUMNS)} FROM retained WHERE topic = ? AND tombstone = 0"
LEVELS = "SELECT json_group_array(levels) FROM retained_levels"
ADD_TO_META = (
    "UPDATE store_meta SET retained_count = retained_count + ?, retained_bytes = retained_bytes + ?, "
    "largest_packet = max(largest_packet, ?)"
)
EXPIRED = (
    "SELECT json_group_array(topic), count(*), coalesce(sum(size), 0) FROM (SELECT topic, size FROM retained "
    "WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?)"
)
BURY = (
    f"UPDATE retained SET {_GONE}, stored_at = :now, revision = max(revision, :revision) "
    "WHERE topic IN (SELECT value FROM json_each(:topics))"
)
PURGE = (
    "DELETE FROM retained WHERE topic IN "
    "(SELECT topic FROM retained WHERE tombstone = 1 AND stored_at < ? ORDER BY stored_at LIMIT ?)"
)
_FROM = "SELECT topic FROM retained WHERE topic >= :low{high} ORDER BY topic LIMIT 1"
_TOPICS = (
    "SELECT json_group_array(topic) FROM "
    "(SELECT topic FROM retained WHERE topic >= :low{high} AND tombstone = 0 ORDER BY topic)"
)
#: matched by the caller, who names the topics
LISTED = " AND topic IN (SELECT value FROM json_each(:listed))"


@lru_cache
def upsert(rows: int) -> str:
    """Write so many rows; a stored row of the same or a higher revision stays as it is."""
    return (
        f"INSERT INTO retained ({_COLUMNS}) VALUES {', '.join([_PLACES] * rows)} "
        f"ON CONFLICT (topic) DO UPDATE SET {_REPLACED} WHERE excluded.revision > retained.revision"
    )


@lru_cache
def replaced(rows: int) -> str:
    """Of so many topics: how many are live, their bytes, and the highest revision among them."""
    return (
        "SELECT count(*) - coalesce(sum(tombstone), 0), coalesce(sum(size), 0), coalesce(max(revision), -1) "
        f"FROM retained WHERE topic IN ({', '.join('?' * rows)})"
    )


@lru_cache
def revisions(rows: int) -> str:
    """Of so many topics: the revision of each that is stored."""
    return f"SELECT topic, revision FROM retained WHERE topic IN ({', '.join('?' * rows)})"


@lru_cache
def add_levels(count: int) -> str:
    """Record so many level counts."""
    return f"INSERT OR IGNORE INTO retained_levels (levels) VALUES {', '.join(['(?)'] * count)}"


@lru_cache
def window(bounded: bool) -> str:
    """Find the first topic from ``low`` (up to ``high`` when bounded), and the one ``offset`` topics after it."""
    return f"SELECT ({_FROM}), ({_FROM} OFFSET :offset)".format(high=" AND topic < :high" if bounded else "")


@lru_cache
def topics(bounded: bool) -> str:
    """List the topics from ``low`` (up to ``high`` when bounded) as one JSON array."""
    return _TOPICS.format(high=" AND topic < :high" if bounded else "")


@lru_cache(maxsize=256)
def read(conditions: str, version5: bool, detailed: bool) -> str:
    """Read at most ``limit`` messages as one row: last topic, count, packets, number of expiries, QoS, expiries.

    The order within the aggregates is the subquery's: with a LIMIT, SQLite can neither flatten it nor drop its order.
    Without the CAST, Python would decode the packets as UTF-8.
    """
    details = ", group_concat(qos, ''), group_concat(coalesce(expires_at, 0))" if detailed else ""
    columns = ", qos" if detailed else ""
    return (
        "SELECT max(topic), count(*), CAST(group_concat(packet, '') AS BLOB), coalesce(min(expires_at), 0)"
        f"{details} FROM (SELECT topic, {_PACKET[version5]} AS packet, expires_at{columns} FROM retained "
        f"WHERE {conditions} ORDER BY topic LIMIT :limit)"
    )


@lru_cache(maxsize=256)
def lengths(conditions: str, version5: bool) -> str:
    """Read the lengths of the packets that :func:`read` would bring, without touching a payload."""
    return (
        f"SELECT group_concat(length) FROM (SELECT {_LENGTH[version5]} AS length FROM retained "
        f"WHERE {conditions} ORDER BY topic LIMIT :limit)"
    )


@lru_cache(maxsize=256)
def conditions(bounded: bool, no_local: bool, limited: bool, version5: bool, check: str) -> str:
    """Say which rows of a range are wanted; the names bound are those of a Selection."""
    parts = [
        "topic >= :low",
        "tombstone = 0",
        "(expires_at IS NULL OR expires_at > :now)",
        "(revision <= :not_after OR revision & 255 <> :node)",
    ]
    if bounded:
        parts.insert(1, "topic < :high")
    if no_local:
        parts.append("client_id IS NOT :except_client")
    if limited:
        parts.append(f"{_LENGTH[version5]} <= :max_packet_size")
    return " AND ".join(parts) + check


def check_of(plan: Plan, levels_present: frozenset[int]) -> Check | None:
    """Return what is left to check of a plan inside its ranges, None when SQL cannot check it."""
    if plan.levels is None:
        return "", {}
    if plan.counted:
        return (" AND levels = :levels" if plan.exact else " AND levels >= :levels"), {"levels": len(plan.levels)}
    terms = plan.terms(levels_present)
    if terms is None:
        return None
    if not terms:
        return " AND 0", {}
    # The "+" keeps SQLite from deriving a range from the bound pattern, for which it would prepare anew each time.
    alternatives = [f"levels = :levels{number} AND +topic GLOB :glob{number}" for number in range(len(terms))]
    bound: dict[str, Any] = {}
    for number, term in enumerate(terms):
        bound[f"levels{number}"] = term.levels
        bound[f"glob{number}"] = term.glob
    return f" AND ({' OR '.join(alternatives)})", bound
