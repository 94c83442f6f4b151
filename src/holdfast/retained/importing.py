"""Merging a staging area into the retained messages, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.messages import STORED_ENTRY
from holdfast.core.tickets import StorageFailure
from holdfast.retained.import_jobs import DONE, REJECTED, Job, advance, forget, take_turn
from holdfast.retained.limits import NotRetained, RetainerLimits, name_refusal, size_refusal
from holdfast.retained.quota import ImportQuota
from holdfast.retained.service import RetainedMessages
from holdfast.retained.staging import Staging
from holdfast.retained.store.rows import MESSAGE_COLUMNS, Row, properties_of
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.statements import Statements, Totals
from holdfast.retained.store.usage import UsageTable
from holdfast.retained.verdicts import Merge, PartSize, Verdict, verdict_of
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.driver import Cursor

# Merging a staging area into the retained messages, part by part.
#
# How it works. The pipeline, ``holdfast retainer import`` and the API's ``/import`` all first stage rows; then a job
# merges the rows. A job takes the staged rows in topic order, some hundred at a time. Each part is one transaction in
# the writer's thread, which reads the present rows, judges each staged row, writes the rows that prevail under new
# revisions, appends to the history, and records the job's position. An example, with ``newer``::
#
#     staged   topic  stored_at        present  topic  stored_at          verdict
#              a      100                       a      90                 imported
#              b      100                       b      120                kept
#              c      100                       c      110 (a tombstone)  cleared
#              d      100                       -                         imported
#
# The job's row in ``pipeline_jobs`` then says: position ``d``, 2 imported, 1 kept, 1 cleared.
#
# The invariant: rows, history and position are committed together. So a job that was killed continues after its last
# part, repeats nothing, and counts nothing twice; a job that is done does nothing. Between two parts the reactor and
# the writer do other work. A part keeps the writer busy for about 3 ms (:mod:`.verdicts`).
#
# Two other ways were tried and left out. An earlier engine decided in the reactor's thread: a client's change could
# come between its read and its write, and its rules differed from those of the pipeline. One transaction for a whole
# import would delay all publishers until its end, and leave nothing if it fails.


#: The number of rows in the first part.
FIRST_ROWS = 250
#: How often a part is tried: with several nodes, a transaction fails when another one has changed the same topics.
_ATTEMPTS = 5


@frozen
class Progress:
    """The state of a job, and the messages that its last part has rejected."""

    job: Job
    rejects: Sequence[Reject]


class Merger:
    """Merges staging areas, ``rows`` rows at a time.

    With ``hold``, the size of a part adapts so that each part keeps the writer busy for about ``hold`` seconds, by
    the clock ``seconds``. ``now`` is in milliseconds since the epoch; ``pause`` fires after the reactor has run its
    other work.
    """

    _log = Logger()

    def __init__(
        self,
        retained: RetainedMessages,
        store: SQLRetainedStore,
        *,
        now: Callable[[], int],
        pause: Callable[[], Deferred[None]],
        rows: int = FIRST_ROWS,
        hold: float | None = None,
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self.now = now
        self.pause = pause
        #: the number of messages imported since the start
        self.imported = 0
        self._part_size = PartSize(rows, hold)
        self._seconds = seconds
        self._retained = retained
        self._store = store

    @as_deferred
    async def step(self, request: ImportJob) -> Progress:
        """Merge the next part of a job, nothing if the job is done.

        Fails with NotRetained, NotStaged, OtherJob or :class:`StorageFailure`. A part that has begun is finished and
        announced, even if the caller stops waiting.
        """
        if not self._retained.admission.enabled:
            raise NotRetained("retainer.enable is false")
        while await self._retained.make_room():  # an import must not be refused because of expired messages
            await self.pause()
        attempts = 0
        while True:
            part = self._begin(request)
            try:
                await part.done
            except StorageFailure:
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
            else:
                break
            finally:
                await self.pause()
        assert part.job is not None
        self._part_size.took(part.taken, part.held)
        if part.job.is_done:
            self._log.info("the import {name!r} is done: {counts}", name=part.job.name, counts=dict(part.job.counts))
        return Progress(part.job, part.rejects)

    def _begin(self, request: ImportJob) -> MergedPart:
        stamps = self._store.next_revisions(self._part_size.rows)
        part = MergedPart(
            request, self._retained.admission.limits, stamps, self.now(), tell=self._announce, seconds=self._seconds
        )
        self._retained.merging(stamps[-1])
        self._store.merge(part)
        return part

    def _announce(self, part: MergedPart) -> None:
        self.imported += len(part.topics)
        self._retained.merged(part.topics, part.stamps[-1])


# One part of an import job: a transaction that judges staged rows and writes the rows that prevail.


# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

#: The most bytes of payload and properties in a part: publishers wait while a part is written.
MOST_BYTES = 1 << 20


@frozen
class ImportJob:
    """The request to merge a staging area under a job's name.

    ``rejected`` messages were rejected before. A ``temporary`` job cannot be repeated under its name: its record is
    deleted when it is done.
    """

    name: str
    staging: Staging
    merge: Merge
    rejected: int = 0
    temporary: bool = False


@frozen
class Reject:
    """A staged message that a limit refuses."""

    topic: str
    reason: str


@frozen
class _PresentRow:
    """The present row of a topic, without the payload."""

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

    @property
    def stored_size(self) -> int:
        """The bytes that quotas count."""
        return STORED_ENTRY + len(self.topic.encode()) + len(self.properties5) + self.size

    def is_like(self, row: Row) -> bool:
        """Tell whether a staged row is the same, apart from the payload, which is not compared here."""
        return (
            self.size == row.size
            and self.stored_at == row.stored_at
            and self.qos == row.qos
            and self.expires_at == row.expires_at
            and self.client_id == row.client_id
            and self.username == row.username
            and self.properties5 == row.properties5
        )


@define(eq=False)
class MergedPart:
    """One part of a job: a :class:`~holdfast.retained.store.sql.MergePart`.

    ``stamps`` are made before the transaction begins. So a change that a client makes in the meantime has a higher
    revision, and prevails. After the transaction, ``job`` and ``rejects`` describe the result, ``taken`` is the number
    of staged rows, and ``held`` the seconds for which the part kept the writer busy, without the commit. ``done``
    fires then.
    """

    request: ImportJob
    limits: RetainerLimits
    stamps: Sequence[int]
    now: int
    job: Job | None = None
    rejects: list[Reject] = field(factory=list)
    topics: list[str] = field(factory=list)
    done: Deferred[None] = field(factory=Deferred)
    tell: Callable[[MergedPart], None] = lambda _: None
    seconds: Callable[[], float] = monotonic
    taken: int = 0
    held: float = 0.0
    _began: float = 0.0
    _counts: Counter[str] = field(factory=Counter)

    def decide(self, cursor: Cursor, statements: Statements, usage: UsageTable) -> list[Row]:
        """Return the rows that prevail, under new revisions."""
        # The database may fail and the writer repeat the transaction: each repetition begins with empty results.
        self._began = self.seconds()
        self.taken, self.rejects, self.topics, self._counts = 0, [], [], Counter()
        request = self.request
        job = self.job = take_turn(cursor, request.name, request.merge, self.now, request.rejected)
        if job.is_done:
            return []
        staged = request.staging.take(cursor, job.position, len(self.stamps), MOST_BYTES)
        if not staged:
            self.job = evolve(job, state=DONE)
            return []
        self.taken = len(staged)
        self.job = evolve(job, position=staged[-1].topic)
        present = _present_rows(cursor, statements, [row.topic for row in staged])
        same = _same(cursor, [row for row in staged if (found := present.get(row.topic)) and found.is_like(row)])
        quota = ImportQuota(cursor, self.limits, usage)
        rows = []
        for row, stamp in zip(staged, self.stamps, strict=False):
            known = present.get(row.topic)
            verdict = verdict_of(row, known, request.merge, self.now, row.topic in same)
            if verdict is not Verdict.IMPORTED:
                self._counts[verdict.value] += 1
                continue
            before = None if known is None or known.tombstone else (known.stored_size, known.client_id)
            refusal = (
                name_refusal(self.limits, row.topic, properties_of(row))
                or size_refusal(self.limits, row.topic, row.size)
                or quota.refusal(row, before)
            )
            if refusal is not None:
                self.rejects.append(Reject(row.topic, str(refusal)))
                continue
            quota.charge(row, before)
            rows.append(Row._make((row.topic, stamp, *row[2:])))  # twice as fast as _replace
        self._counts[Verdict.IMPORTED.value] = len(rows)
        return rows

    def note(self, cursor: Cursor, written: Sequence[str]) -> None:
        """Record the progress of the job. A row that lost to a higher revision counts as kept."""
        assert self.job is not None
        lost = self._counts[Verdict.IMPORTED.value] - len(written)
        self._counts.update({Verdict.IMPORTED.value: -lost, Verdict.KEPT.value: lost, REJECTED: len(self.rejects)})
        self.job = evolve(
            self.job, counts={name: count + self._counts[name] for name, count in self.job.counts.items()}
        )
        self.topics = list(written)
        if self.job.is_done and self.request.temporary:
            forget(cursor, self.job.name)
        else:
            advance(cursor, self.job)
        self.held = self.seconds() - self._began

    def settled(self, outcome: Totals | Failure) -> None:
        """Announce the committed changes, then fire ``done``."""
        if isinstance(outcome, Failure):
            self.topics = []
        self.tell(self)
        if self.done.called:  # the caller has stopped waiting, and cancelled it
            return
        if isinstance(outcome, Failure):
            self.done.errback(outcome)
        else:
            self.done.callback(None)


def _present_rows(cursor: Cursor, statements: Statements, topics: Sequence[str]) -> dict[str, _PresentRow]:
    # With several nodes on a database, another node must not change these rows between the verdict and the write.
    statements.usage_of(cursor, topics)
    found = {}
    for columns in statements.topic_states(cursor, topics):
        *entry, size, tombstone = columns
        named = dict(zip(MESSAGE_COLUMNS, entry, strict=True))
        del named["payload"]
        found[columns[0]] = _PresentRow(**named, size=size, tombstone=tombstone)
    return found


def _same(cursor: Cursor, rows: Sequence[Row]) -> set[str]:
    """Return the topics whose present payload is that of the staged row."""
    if not rows:
        return set()
    places = ", ".join("?" * len(rows))
    cursor.execute(f"SELECT topic, payload FROM retained WHERE topic IN ({places})", [row.topic for row in rows])
    payloads = {topic: bytes(payload) for topic, payload in cursor.fetchall()}
    return {row.topic for row in rows if payloads.get(row.topic) == row.payload}
