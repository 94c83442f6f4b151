"""The texts of the statements that read retained messages, one for each shape. They are built once and kept.

They are built from constants and fragments alone: values are always bound, never part of a text.
"""
# ruff: noqa: S608

from __future__ import annotations

from functools import lru_cache

from holdfast.retained.store.dialects.fragments import Fragments, below
from holdfast.retained.store.rows import MESSAGE_COLUMNS

#: The first topic of a range.
FIRST = "SELECT topic FROM retained WHERE topic >= :low{high} ORDER BY topic LIMIT 1"


@lru_cache
def walk_text(bounded: bool) -> str:
    """Return the statement that finds the end of the next topics to scan."""
    return f"SELECT ({FIRST} OFFSET :offset)".format(high=below(bounded))


@lru_cache
def topics_text(fragments: Fragments, bounded: bool) -> str:
    """Return the statement that lists the topics of a range."""
    return (
        f"SELECT {fragments.list_of.format('topic')} FROM "
        f"(SELECT topic FROM retained WHERE topic >= :low{below(bounded)} AND tombstone = 0 ORDER BY topic) AS found"
    )


@lru_cache(maxsize=256)
def conditions_text(
    fragments: Fragments, bounded: bool, no_local: bool, limited: str, queued: bool, version5: bool, check: str
) -> str:
    """Return the condition of the messages that a read returns."""
    # The check comes first: most of the scanned topics fail it.
    parts = [
        f"topic >= :low{below(bounded)}{check}",
        "tombstone = 0",
        "(expires_at IS NULL OR expires_at > :now)",
        "(revision <= :not_after OR revision & 255 <> :node)",
    ]
    if queued:
        parts.append(
            "(revision <= :queued_above OR revision > :queued_until OR qos < :queued_qos OR revision & 255 <> :node)"
        )
    if no_local:
        parts.append(f"client_id {fragments.differs} :except_client")
    if limited:
        parts.append(f"{packet_length(fragments, version5)} {limited} :max_packet_size")
    return " AND ".join(parts)


@lru_cache(maxsize=256)
def read_text(
    fragments: Fragments, conditions: str, version5: bool, detailed: bool, publishers: bool, facts: bool
) -> str:
    """Select last topic, count, packets, soonest expiry; if asked for, QoS and expiry of all, publishers, and facts."""
    packet = (
        f"prefix5 || {fragments.topic_bytes} || properties5 || payload"
        if version5
        else f"prefix3 || {fragments.topic_bytes} || payload"
    )
    return (
        f"SELECT max(topic), count(*), {fragments.packets}, coalesce(min(expires_at), 0)"
        f"{', ' + fragments.details if detailed else ''}"
        f"{', ' + fragments.tuples.format('username, client_id') if publishers else ''}"
        f"{', ' + fragments.tuples.format('stored_at, revision, client_id') if facts else ''} "
        f"FROM (SELECT topic, {packet} AS packet, "
        f"expires_at{', qos' if detailed else ''}{', username' if publishers else ''}"
        f"{', client_id' if publishers or facts else ''}{', stored_at, revision' if facts else ''} "
        f"FROM retained WHERE {conditions}{fragments.none_longer} "
        "ORDER BY topic LIMIT :limit) AS found"
    )


@lru_cache
def survey_text(fragments: Fragments, guests: bool) -> str:
    """Return the statement that lists the publishers of the next topics."""
    return (
        f"SELECT max(topic), count(*), {fragments.tuples.format('topic, username, client_id')} "
        f"FILTER (WHERE tombstone = 0 AND revision > :newer_than{'' if guests else ' AND username IS NOT NULL'}) "
        "FROM (SELECT topic, username, client_id, tombstone, revision FROM retained WHERE topic > :after "
        "ORDER BY topic LIMIT :limit) AS found"
    )


@lru_cache(maxsize=256)
def numbers_text(fragments: Fragments, conditions: str, length: str) -> str:
    """Return the statement that lists a length of each matching message."""
    return (
        f"SELECT {fragments.numbers} FROM (SELECT topic, {length} AS length FROM retained "
        f"WHERE {conditions} ORDER BY topic LIMIT :limit) AS found"
    )


@lru_cache(maxsize=64)
def entries_text(fragments: Fragments, conditions: str, payloads: bool) -> str:
    """Return the statement that reads matching messages as rows."""
    columns = entry_columns(fragments, payloads)
    return f"SELECT {columns} FROM retained WHERE {conditions} ORDER BY topic LIMIT :limit"


def entry_columns(fragments: Fragments, payloads: bool) -> str:
    """Return the columns of such a row."""
    columns = ", ".join(MESSAGE_COLUMNS)
    return (columns if payloads else columns.replace("payload", fragments.empty)) + ", size"


def packet_length(fragments: Fragments, version5: bool) -> str:
    """Return an expression that needs no payload: the column ``size`` has the payload's length."""
    length, topic = fragments.length, fragments.topic_length
    if version5:
        return f"{length}(prefix5) + {topic} + {length}(properties5) + size"
    return f"{length}(prefix3) + {topic} + size"


def message_weight(fragments: Fragments, payloads: bool) -> str:
    """Return the expression for the bytes of a message in an answer."""
    if payloads:
        return packet_length(fragments, True)
    return f"{fragments.topic_length} + {fragments.length}(properties5)"
