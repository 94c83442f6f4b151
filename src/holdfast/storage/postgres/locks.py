"""The advisory locks of this program in Postgres."""

from __future__ import annotations

#: The first of the two numbers of all its advisory locks ("hold"). The second is the node, or 0 for the schema.
LOCKS = 0x686F6C64
#: The nodes whose processes are connected now, in a result with one column.
LIVING_NODES = (
    f"SELECT CAST(objid AS integer) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {LOCKS} "  # noqa: S608
    "AND objid <> 0 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
