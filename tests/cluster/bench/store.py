"""What the bench reads from the database: the rows that the checks compare, and who has committed in which incarnation.

A deferred trigger runs at the end of each transaction of a node. It finds the node by the advisory lock of its writing
connection, and notes the incarnation that this node has at this time. A connection belongs to one process: if it has
committed in two incarnations, it has committed after its own was over.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import psycopg

from holdfast.storage.postgres_values import LOCKS
from tests.cluster.bench.history import Stored

_LOGGED = ("retained", "cluster_cursors", "session_deliveries", "sessions", "wills")

LOGGING = f"""
CREATE TABLE bench_commits (node int, connection text, incarnation bigint, PRIMARY KEY (node, connection, incarnation));
CREATE FUNCTION bench_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('bench.noted', true) = CAST(txid_current() AS text) THEN RETURN NULL; END IF;
    PERFORM set_config('bench.noted', CAST(txid_current() AS text), true);
    INSERT INTO bench_commits
        SELECT m.node, CONCAT(l.pid, '@', a.backend_start), m.incarnation FROM pg_locks l
        JOIN cluster_members m ON m.node = CAST(l.objid AS int) JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'advisory' AND l.granted AND l.classid = {LOCKS}
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
""" + "".join(
    f"CREATE CONSTRAINT TRIGGER bench_note AFTER INSERT OR UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION bench_note();\n"
    for table in _LOGGED
)


def read_store(connection: psycopg.Connection[Any], prefix: str) -> Stored:
    """Return what is stored of a cycle. The client identifiers and the topics of a cycle begin with its prefix."""
    retained = {
        topic: _number(payload)
        for topic, payload in connection.execute(
            "SELECT topic, payload FROM retained WHERE tombstone = 0 AND starts_with(CAST(topic AS text), %s)",
            (f"{prefix}/",),
        ).fetchall()
    }
    sessions: dict[str, list[int | None]] = defaultdict(list)
    owner = "owner" if _has_owners(connection) else "CAST(id & 255 AS int)"
    for client_id, node in connection.execute(
        f"SELECT client_id, {owner} FROM sessions WHERE starts_with(client_id, %s)".encode(),
        (f"{prefix}-",),
    ).fetchall():
        sessions[client_id].append(node)
    commits: dict[tuple[int, str], list[int]] = defaultdict(list)
    for node, name, incarnation in connection.execute(
        "SELECT node, connection, incarnation FROM bench_commits ORDER BY node, connection, incarnation"
    ).fetchall():
        commits[node, name].append(incarnation)
    runs, rows = waiting(connection)
    return Stored(
        retained,
        {client_id: tuple(nodes) for client_id, nodes in sessions.items()},
        {key: tuple(incarnations) for key, incarnations in commits.items()},
        runs,
        rows,
    )


def waiting(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """Return the bytes of runs and the number of rows that wait for nodes."""
    found = connection.execute(
        "SELECT (SELECT coalesce(sum(length(data)), 0) FROM cluster_runs), (SELECT count(*) FROM cluster_messages)"
    ).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def _has_owners(connection: psycopg.Connection[Any]) -> bool:
    return bool(
        connection.execute(
            "SELECT 1 FROM information_schema.columns WHERE table_name = 'sessions' AND column_name = 'owner'"
        ).fetchall()
    )


def _number(payload: bytes) -> int:
    text = payload.split(b" ", 1)[0]
    return int(text) if text.isdigit() else 0
