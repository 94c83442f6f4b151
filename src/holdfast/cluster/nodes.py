"""The nodes of the cluster as operators see them: from the database, and in the words of the living members.

How it works. The database knows which nodes there are, their leases and states, and how many rows of others each one
has still to read. All else a member tells of itself: uptime, clients, memory. A member that does not answer within two
seconds is ``silent``; its row is shown all the same. So the list is complete while members stand still or are dead, and
``holdfast node list`` shows the part of the database while no member runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from holdfast.cluster.members import Member, read_members
from holdfast.core.units import date_of

#: the subject of the questions of this module
SUBJECT = "node"
#: the most rows of one origin that are counted
MOST_LAG = 10_000

_LAGS = (
    "SELECT m.node, CAST(coalesce(sum(w.waiting), 0) AS bigint) FROM cluster_members m "
    "LEFT JOIN cluster_cursors o ON o.node = o.origin AND o.origin <> m.node "
    "LEFT JOIN cluster_cursors c ON c.node = m.node AND c.origin = o.origin "
    "LEFT JOIN LATERAL (SELECT count(*) AS waiting FROM (SELECT 1 FROM cluster_messages r WHERE r.origin = o.origin "
    "AND r.number > coalesce(c.number, 0) AND r.targets LIKE '%,' || m.node || ',%' "
    f"LIMIT {MOST_LAG}) AS counted) w ON true WHERE m.state <> 'left' GROUP BY m.node"
)
# ruff: noqa: S608 - the statement is built from a constant


@frozen
class StoredNode:
    """A node in the database. ``lag``: the rows that it has still to read, at most ``MOST_LAG`` of each other node."""

    member: Member
    lag: int


def read_nodes(connection: Any) -> list[StoredNode]:
    """Return all nodes, by number."""
    cursor = connection.cursor()
    members = read_members(cursor)
    cursor.execute(_LAGS)
    lags = dict(cursor.fetchall())
    return [StoredNode(member, lags.get(member.node, 0)) for member in members]


def stored_fields(stored: StoredNode) -> dict[str, Any]:
    """Return what the database tells of a node, with the names of the API."""
    member = stored.member
    fields: dict[str, Any] = {
        "node": str(member.node),
        "node_status": "running" if member.is_alive else "stopped",
        "cluster": member.cluster,
        "state": member.state if member.is_alive or member.state in ("dead", "left") else "silent",
        "incarnation": member.incarnation,
        "lease_until": date_of(member.lease_until),
        "lease_seconds": member.left / 1000 if member.is_alive else 0.0,
        "lag": stored.lag,
        "configuration": member.config_hash,
    }
    return {**fields, "address": member.address} if member.address else fields


def told(fields: Mapping[str, Any]) -> bytes:
    """Return the answer of a member that tells these fields of itself."""
    return json.dumps(fields).encode()


def listed(stored: Sequence[StoredNode], own: Mapping[str, Any], answers: Mapping[int, bytes]) -> list[dict[str, Any]]:
    """Return all nodes: their rows, with the fields that this node (``own``) and others tell of themselves."""
    nodes = []
    for each in stored:
        fields = stored_fields(each)
        if fields["node"] == own["node"]:
            nodes.append({**own, **fields, "silent": False, "local": True})
        else:
            answer = answers.get(each.member.node)
            told_fields = {} if answer is None else json.loads(answer)
            silent = answer is None and each.member.is_alive
            nodes.append({**told_fields, **fields, "silent": silent, "local": False})
    return nodes
