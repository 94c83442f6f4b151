"""Merging a staging area into the retained messages, chunk by chunk.

How it works. The pipeline, ``holdfast retainer import`` and the API's ``/import`` all first stage rows; then a job
merges the rows. A job takes the staged rows in topic order, some hundred at a time. Each chunk is one transaction in
the writer's thread, which reads the present rows, judges each staged row, writes the rows that prevail under new
revisions, appends to the history, and records the job's position. An example, with ``newer``::

    staged   topic  stored_at        present  topic  stored_at          verdict
             a      100                       a      90                 imported
             b      100                       b      120                kept
             c      100                       c      110 (a tombstone)  cleared
             d      100                       -                         imported

The job's row in ``pipeline_jobs`` then says: position ``d``, 2 imported, 1 kept, 1 cleared.

The invariant: rows, history and position are committed together. So a job that was killed continues after its last
chunk, repeats nothing, and counts nothing twice; a job that is done does nothing. Between two chunks the reactor and
the writer do other work. A chunk keeps the writer busy for about 3 ms (:mod:`.chunk_size`).

Two other ways were tried and left out. An earlier engine decided in the reactor's thread: a client's change could come
between its read and its write, and its rules differed from those of the pipeline. One transaction for a whole import
would delay all publishers until its end, and leave nothing if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from holdfast.retained.importing.chunk import ImportJob, MergedChunk, Reject
from holdfast.retained.importing.chunk_size import ChunkSize
from holdfast.retained.importing.jobs import Job
from holdfast.retained.quota.limits import NotRetained
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.tickets import StorageFailure

#: The number of rows in the first chunk.
ROWS = 250
#: How often a chunk is tried: with several nodes, a transaction fails when another one has changed the same topics.
_ATTEMPTS = 5


@frozen
class Progress:
    """The state of a job, and the messages that its last chunk has rejected."""

    job: Job
    rejects: Sequence[Reject]


class Merger:
    """Merges staging areas, ``rows`` rows at a time.

    With ``hold``, the size of a chunk adapts so that each chunk keeps the writer busy for about ``hold`` seconds, by
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
        rows: int = ROWS,
        hold: float | None = None,
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self.now = now
        self.pause = pause
        #: the number of messages imported since the start
        self.imported = 0
        self._chunk_size = ChunkSize(rows, hold)
        self._seconds = seconds
        self._retained = retained
        self._store = store

    @inlineCallbacks
    def step(self, request: ImportJob) -> Generator[Deferred[Any], Any, Progress]:
        """Merge the next chunk of a job, nothing if the job is done.

        Fails with NotRetained, NotStaged, OtherJob or :class:`StorageFailure`. A chunk that has begun is finished and
        announced, even if the caller stops waiting.
        """
        if not self._retained.enabled:
            raise NotRetained("retainer.enable is false")
        while (yield self._retained.make_room()):  # an import must not be refused because of expired messages
            yield self.pause()
        attempts = 0
        while True:
            chunk = self._begin(request)
            try:
                yield chunk.done
            except StorageFailure:
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
            else:
                break
            finally:
                yield self.pause()
        assert chunk.job is not None
        self._chunk_size.took(chunk.taken, chunk.held)
        if chunk.job.is_done:
            self._log.info("the import {name!r} is done: {counts}", name=chunk.job.name, counts=dict(chunk.job.counts))
        return Progress(chunk.job, chunk.rejects)

    def _begin(self, request: ImportJob) -> MergedChunk:
        stamps = self._store.next_revisions(self._chunk_size.rows)
        chunk = MergedChunk(
            request, self._retained.limits, stamps, self.now(), tell=self._announce, seconds=self._seconds
        )
        self._retained.merging(stamps[-1])
        self._store.merge(chunk)
        return chunk

    def _announce(self, chunk: MergedChunk) -> None:
        self.imported += len(chunk.topics)
        self._retained.merged(chunk.topics, chunk.stamps[-1])
