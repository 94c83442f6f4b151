"""Import jobs: the progress of each, in the table ``pipeline_jobs``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from attrs import frozen

from holdfast.retained.verdicts import Merge, Verdict
from holdfast.storage.driver import Cursor

MERGING = "merging"
DONE = "done"
REJECTED = "rejected"
#: The longest name of a job, in characters.
LONGEST_NAME = 200

_BEGIN = "INSERT INTO pipeline_jobs VALUES (?, ?, ?, '', ?, ?, ?) ON CONFLICT (job) DO NOTHING"
#: Two processes may merge for one job. Each updates the row first, and so waits for the other's transaction.
_TURN = "UPDATE pipeline_jobs SET changed_at = ? WHERE job = ?"
_READ = "SELECT job, state, merge, position, counts FROM pipeline_jobs WHERE job = ?"
_ADVANCE = "UPDATE pipeline_jobs SET state = ?, position = ?, counts = ? WHERE job = ?"
_FORGET = "DELETE FROM pipeline_jobs WHERE job = ?"


class OtherJob(ValueError):
    """A job of this name was begun with another rule; the text says with which."""


@frozen
class Job:
    """A job has merged all staged topics up to ``position``. ``counts`` has a number for each verdict and for rejects.

    Messages are rejected by a limit, or before the job begins.
    """

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
    """Return the job of this name. If there is none, begin it with ``rejected`` messages rejected before.

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
    """Return the job of this name, None if there is none."""
    cursor.execute(_READ, (name,))
    row = cursor.fetchone()
    if row is None:
        return None
    name, state, merge, position, counts = row
    return Job(name, state, Merge(merge), position, json.loads(counts))


def advance(cursor: Cursor, job: Job) -> None:
    """Record the progress of a job."""
    cursor.execute(_ADVANCE, (job.state, job.position, json.dumps(job.counts), job.name))


def forget(cursor: Cursor, name: str) -> None:
    """Delete the record of a job that cannot be repeated."""
    cursor.execute(_FORGET, (name,))
