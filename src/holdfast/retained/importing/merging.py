"""Merging what has been staged into what is retained: chunk by chunk, so that everybody else has a turn.

A chunk is one transaction: it looks at what is retained, decides, writes, appends to the history and records how far
the job has got. A job that is cut short goes on behind its last chunk, and one that is done does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Any

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.retained.importing.chunk_size import Pace
from holdfast.retained.importing.jobs import DONE, REJECTED, Job, advance, take_turn
from holdfast.retained.importing.staging import Staging
from holdfast.retained.importing.verdicts import Merge, Verdict, prevails, was_cleared_since
from holdfast.retained.quota.import_quota import ImportQuota
from holdfast.retained.quota.limits import NotRetained, RetainerLimits, size_refusal
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.dialects.answers import Totals
from holdfast.retained.store.dialects.statements import Statements
from holdfast.retained.store.rows import MESSAGE_COLUMNS, Row
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.usage import UsageTable
from holdfast.storage.driver import Cursor
from holdfast.tickets import StorageFailure

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

#: Topics of a job's first chunk, and the most bytes of payloads of any: everybody who publishes waits for a chunk.
ROWS = 250
BYTES = 1 << 20
#: How often a chunk is tried again when the database failed, as it does when another node has changed the same topics.
_ATTEMPTS = 5


@frozen
class Reject:
    """A staged message that a limit stands in the way of."""

    topic: str
    reason: str


@frozen
class _Standing:
    """How a topic stands, but for the payload."""

    topic: str
    qos: int
    properties5: bytes
    client_id: str | None
    username: str | None
    stored_at: int
    expires_at: int | None
    revision: int
    size: int
    tombstone: int

    def is_like(self, row: Row) -> bool:
        """Tell whether a message is the same as far as can be seen from here."""
        return (
            self.size == row.size
            and self.stored_at == row.stored_at
            and self.qos == row.qos
            and self.expires_at == row.expires_at
            and self.client_id == row.client_id
            and self.username == row.username
            and self.properties5 == row.properties5
        )


def verdict_of(row: Row, known: _Standing | None, merge: Merge, now: int, same: bool) -> Verdict:
    """Return what becomes of a staged message; ``same`` tells that exactly it is retained."""
    if row.expires_at is not None and row.expires_at <= now:
        return Verdict.EXPIRED
    if known is None:
        return Verdict.IMPORTED
    if known.tombstone:
        return Verdict.CLEARED if was_cleared_since(row.stored_at, known.stored_at, merge) else Verdict.IMPORTED
    if known.expires_at is not None and known.expires_at <= now:
        return Verdict.IMPORTED
    if same:
        return Verdict.UNCHANGED
    return Verdict.IMPORTED if prevails(row, known, merge) else Verdict.KEPT


@define(eq=False)
class MergedChunk:
    """One chunk of a job: a :class:`~holdfast.retained.store.sql.Chunk`.

    ``stamps`` were made before anything is looked at.

    So many were ``rejected`` before the job began. ``job`` and ``rejects`` are as after the chunk, ``taken`` how many
    messages were, and ``held`` for how long, in ``seconds``, but for the commit; ``done`` fires when it is over.
    """

    name: str
    merge: Merge
    staging: Staging
    limits: RetainerLimits
    stamps: Sequence[int]
    now: int
    rejected: int = 0
    job: Job | None = None
    rejects: list[Reject] = field(factory=list)
    topics: list[str] = field(factory=list)
    done: Deferred[None] = field(factory=Deferred)
    tell: Callable[[MergedChunk], None] = lambda _: None
    seconds: Callable[[], float] = monotonic
    taken: int = 0
    held: float = 0.0
    _began: float = 0.0
    _counts: Counter[str] = field(factory=Counter)

    def decide(self, cursor: Cursor, statements: Statements, usage: UsageTable) -> list[Row]:
        """Return the rows that prevail, under new revisions."""
        self._began = self.seconds()
        self.taken, self.rejects, self.topics, self._counts = 0, [], [], Counter()
        job = self.job = take_turn(cursor, self.name, self.merge, self.now, self.rejected)
        if job.is_done:
            return []
        staged = self.staging.take(cursor, job.position, len(self.stamps), BYTES)
        if not staged:
            self.job = evolve(job, state=DONE)
            return []
        self.taken = len(staged)
        self.job = evolve(job, position=staged[-1].topic)
        standing = self._standing(cursor, statements, [row.topic for row in staged])
        same = _same(cursor, [row for row in staged if (found := standing.get(row.topic)) and found.is_like(row)])
        quota = ImportQuota(cursor, self.limits, usage)
        rows = []
        for row, stamp in zip(staged, self.stamps, strict=False):
            known = standing.get(row.topic)
            verdict = verdict_of(row, known, self.merge, self.now, row.topic in same)
            if verdict is Verdict.IMPORTED:
                before = None if known is None or known.tombstone else (known.size, known.client_id)
                refusal = size_refusal(self.limits, row.topic, row.size) or quota.refusal(row, before)
                if refusal is not None:
                    self.rejects.append(Reject(row.topic, str(refusal)))
                    continue
                quota.charge(row, before)
                rows.append(Row._make((row.topic, stamp, *row[2:])))  # half as long as _replace
            else:
                self._counts[verdict.value] += 1
        self._counts[Verdict.IMPORTED.value] = len(rows)
        return rows

    def note(self, cursor: Cursor, written: Sequence[str]) -> None:
        """Record how far the job has got. What has lost to a higher revision counts as kept."""
        assert self.job is not None
        lost = self._counts[Verdict.IMPORTED.value] - len(written)
        self._counts.update({Verdict.IMPORTED.value: -lost, Verdict.KEPT.value: lost, REJECTED: len(self.rejects)})
        self.job = evolve(
            self.job, counts={name: count + self._counts[name] for name, count in self.job.counts.items()}
        )
        self.topics = list(written)
        advance(cursor, self.job)
        self.held = self.seconds() - self._began

    def settled(self, outcome: Totals | Failure) -> None:
        """Tell of what is committed, then go on."""
        if isinstance(outcome, Failure):
            self.topics = []
        self.tell(self)
        if self.done.called:
            return
        if isinstance(outcome, Failure):
            self.done.errback(outcome)
        else:
            self.done.callback(None)

    def _standing(self, cursor: Cursor, statements: Statements, topics: Sequence[str]) -> dict[str, _Standing]:
        statements.usage_of(cursor, topics)  # where several nodes write, what is decided upon is locked
        found = {}
        for columns in statements.topic_states(cursor, topics):
            *entry, size, tombstone = columns
            named = dict(zip(MESSAGE_COLUMNS, entry, strict=True))
            del named["payload"]
            found[columns[0]] = _Standing(**named, size=size, tombstone=tombstone)
        return found


def _same(cursor: Cursor, rows: Sequence[Row]) -> set[str]:
    """Return the topics of which exactly these payloads are retained."""
    if not rows:
        return set()
    places = ", ".join("?" * len(rows))
    cursor.execute(f"SELECT topic, payload FROM retained WHERE topic IN ({places})", [row.topic for row in rows])
    payloads = {topic: bytes(payload) for topic, payload in cursor.fetchall()}
    return {row.topic for row in rows if payloads.get(row.topic) == row.payload}


@frozen
class Progress:
    """How a job stands, and what was rejected since the last time."""

    job: Job
    rejects: Sequence[Reject]


class Merger:
    """Merges what has been staged, so many ``rows`` at once; with ``hold``, so many as take that long, in ``seconds``.

    ``now`` is in milliseconds since the epoch; ``pause`` returns what fires when everybody else has had a turn.
    """

    _log = Logger()

    def __init__(
        self,
        retained: RetainedMessages,
        store: SQLRetainedStore,
        *,
        now: Callable[[], int],
        pause: Callable[[], Deferred[None]],
        rows: int = ROWS,
        hold: float | None = None,
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self._pace = Pace(rows, hold)
        self._seconds = seconds
        self._retained = retained
        self._store = store
        self._now = now
        self._pause = pause

    @inlineCallbacks
    def step(
        self, name: str, staging: Staging, merge: Merge, rejected: int = 0
    ) -> Generator[Deferred[Any], Any, Progress]:
        """Merge the next chunk of a job; nothing of one that is done. So many were ``rejected`` before it began.

        Fails with NotRetained, NotStaged, OtherJob or :class:`StorageFailure`. A chunk that has begun is finished and
        told of, also when nobody waits for it any more.
        """
        if not self._retained.enabled:
            raise NotRetained("retainer.enable is false")
        attempts = 0
        while True:
            chunk = self._chunk(name, staging, merge, rejected)
            try:
                yield chunk.done
            except StorageFailure:
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
            else:
                break
            finally:
                yield self._pause()
        assert chunk.job is not None
        self._pace.took(chunk.taken, chunk.held)
        if chunk.job.is_done:
            self._log.info("the import {name!r} is done: {counts}", name=name, counts=dict(chunk.job.counts))
        return Progress(chunk.job, chunk.rejects)

    def _chunk(self, name: str, staging: Staging, merge: Merge, rejected: int) -> MergedChunk:
        stamps = self._store.next_revisions(self._pace.rows)
        limits, now = self._retained.limits, self._now()
        chunk = MergedChunk(
            name, merge, staging, limits, stamps, now, rejected, tell=self._tell, seconds=self._seconds
        )  # fmt: skip
        self._retained.merging(stamps[-1])
        self._store.merge(chunk)
        return chunk

    def _tell(self, chunk: MergedChunk) -> None:
        self._retained.merged(chunk.topics, chunk.stamps[-1])
