"""Turns: the order of stored changes, such that a horizon can be named below which nothing becomes visible any more.

In SQLite there is one writer. It numbers the changes, so each has a turn of its own, and the last one is the horizon.

In Postgres, transactions of several nodes end in any order. The turn is the number of the transaction (64 bits, without
wrapping around). All transactions below ``pg_snapshot_xmin`` have ended, so the horizon is the number before it:

    node 1: 700 ......... commits              a token made here has horizon 699: what 700 and 701 change comes again
    node 2:   701 commits       ^
"""

from __future__ import annotations

from attrs import frozen

from holdfast.storage.postgres.locks import LIVING_NODES, LOCKS


@frozen
class Turns:
    """The statements of a dialect.

    ``horizon`` reads the turn up to which all transactions have ended. ``newest`` reads a turn that no transaction that
    has ended is above: in Postgres, that of this transaction. ``history`` reads the name of the succession of turns:
    turns of another one cannot be compared. ``living`` reads the nodes whose processes are connected; None: there is
    one node. ``claim`` reads whether this transaction takes the place of a node (its parameter): then no process is
    that node, and none becomes it before the end of the transaction.
    """

    horizon: str
    newest: str
    history: str
    living: str | None = None
    claim: str = ""


_LAST = "SELECT coalesce(max(turn), 0) FROM retained_changes"

SQLITE = Turns(
    horizon=_LAST,
    newest=_LAST,
    history="SELECT ''",
)
POSTGRES = Turns(
    horizon="SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) - 1",
    newest="SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)",
    # Another cluster, or another time line of this one after a recovery, numbers its transactions anew.
    history=(
        "SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || "
        "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
    ),
    living=LIVING_NODES,
    claim=f"SELECT pg_try_advisory_xact_lock({LOCKS}, ?)",
)


def turns_of(dialect: str) -> Turns:
    """Return the turns of a database's dialect."""
    return SQLITE if dialect == "sqlite" else POSTGRES
