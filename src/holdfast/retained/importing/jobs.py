"""Jobs that merge what has been staged: how far each has got, in the table ``pipeline_jobs``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from attrs import frozen

from holdfast.retained.importing.verdicts import Merge, Verdict
from holdfast.storage.driver import Cursor

MERGING = "merging"
DONE = "done"
REJECTED = "rejected"

_BEGIN = "INSERT INTO pipeline_jobs VALUES (?, ?, ?, '', ?, ?, ?) ON CONFLICT (job) DO NOTHING"
#: Whoever merges for a job updates its row first, so that two take turns.
_TURN = "UPDATE pipeline_jobs SET changed_at = ? WHERE job = ?"
_READ = "SELECT job, state, merge, position, counts FROM pipeline_jobs WHERE job = ?"
_ADVANCE = "UPDATE pipeline_jobs SET state = ?, position = ?, counts = ? WHERE job = ?"


class OtherJob(ValueError):
    """A job of this name was begun with another rule; the text says with which."""


@frozen
class Job:
    """A job: all staged topics up to ``position`` are dealt with. ``counts`` are by verdict, and of the rejected."""

    name: str
    state: str
    merge: Merge
    position: str
    counts: Mapping[str, int]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.state == DONE


NO_COUNTS: Mapping[str, int] = {**{verdict.value: 0 for verdict in Verdict}, REJECTED: 0}


def take_turn(cursor: Cursor, name: str, merge: Merge, now: int, rejected: int = 0) -> Job:
    """Return a job as it stands, begun if there was none of the name, with so many rejected before.

    Raises :class:`OtherJob`.
    """
    counts = json.dumps({**NO_COUNTS, REJECTED: rejected})
    cursor.execute(_BEGIN, (name, MERGING, merge.value, counts, now, now))
    cursor.execute(_TURN, (now, name))
    job = read_job(cursor, name)
    assert job is not None
    if job.merge is not merge:
        raise OtherJob(
            f"the job {name!r} was begun with merge = {job.merge.value}; go on with that, or give this one another name"
        )
    return job


def read_job(cursor: Cursor, name: str) -> Job | None:
    """Return a job as it stands, if there is one of the name."""
    cursor.execute(_READ, (name,))
    row = cursor.fetchone()
    if row is None:
        return None
    name, state, merge, position, counts = row
    return Job(name, state, Merge(merge), position, json.loads(counts))


def advance(cursor: Cursor, job: Job) -> None:
    """Record how a job stands."""
    cursor.execute(_ADVANCE, (job.state, job.position, json.dumps(job.counts), job.name))
