"""The record of the last survey of publishers in the database: a start by the same rules need not survey again.

How it works
------------
A record has a *fingerprint* of all that the verdicts depend on, and a revision: all messages up to it were judged, and
none of them is withheld. That stays true whatever happens later, since a changed message has a higher revision.

    at a start                                                     the broker surveys
    the fingerprint is another one                                 all messages
    it is the same, and no commit has used a higher revision       nothing
    it is the same, and some commit has used a higher revision     the messages with a higher revision

So nothing has to be deleted when rules change, after a crash, or when a command imports messages without a broker.

This needs revisions that increase from process to process. In an SQLite file they do: one process at a time writes, and
each begins above all revisions that were ever used. In Postgres, another node may commit a lower revision later. So
there the record counts only while no other node, and no command, has ever written.
"""

from __future__ import annotations

from holdfast.retained.store.values import EarlierSurvey
from holdfast.storage.driver import Connection

_READ = "SELECT fingerprint, revision FROM source_surveys WHERE node = ?"
_NEWEST = "SELECT coalesce(max(revision_mark), 0) FROM nodes"
_OTHERS = "SELECT count(*) FROM nodes WHERE node <> ? AND revision_mark > 0"
_KEEP = (
    "INSERT INTO source_surveys (node, fingerprint, revision) VALUES (?, ?, ?)"
    " ON CONFLICT (node) DO UPDATE SET fingerprint = excluded.fingerprint, revision = excluded.revision"
)


def read_record(connection: Connection, node: int, shared: bool) -> EarlierSurvey | None:
    """Return what is known from earlier; None if that is nothing. Call it before this process writes anything."""
    cursor = connection.cursor()
    cursor.execute(_READ, (node,))
    found = cursor.fetchall()
    if not found:
        return None
    if shared:
        cursor.execute(_OTHERS, (node,))
        if cursor.fetchall()[0][0]:
            return None
    ((fingerprint, judged),) = found
    cursor.execute(_NEWEST)
    ((newest,),) = cursor.fetchall()
    return EarlierSurvey(fingerprint, None if newest <= judged else judged)


def keep_record(connection: Connection, node: int, fingerprint: str, judged: int | None) -> None:
    """Write the record, inside a transaction. ``judged`` is the revision; None: all that is committed was judged."""
    cursor = connection.cursor()
    if judged is None:
        cursor.execute(_NEWEST)
        ((judged,),) = cursor.fetchall()
    cursor.execute(_KEEP, (node, fingerprint, judged))
