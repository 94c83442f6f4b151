"""The advisory locks of this program in Postgres."""

from __future__ import annotations

#: The first of the two numbers of the advisory locks of nodes ("hold"). The second is the node, or 0 for the schema.
LOCKS = 0x686F6C64
_SWEEP = LOCKS + 1
_OWN_SWEEP = f"locktype = 'advisory' AND granted AND classid = {_SWEEP} AND pid = pg_backend_pid()"
#: Takes the lock of the node that sweeps, until this connection ends or gives it back: reads whether it has it now.
TAKE_SWEEP = f"SELECT EXISTS (SELECT FROM pg_locks WHERE {_OWN_SWEEP}) OR pg_try_advisory_lock({_SWEEP}, 0)"  # noqa: S608
GIVE_SWEEP_BACK = f"SELECT pg_advisory_unlock({_SWEEP}, 0)"
#: The nodes whose processes are connected now, in a result with one column.
LIVING_NODES = (
    f"SELECT CAST(objid AS integer) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {LOCKS} "  # noqa: S608
    "AND objid <> 0 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
