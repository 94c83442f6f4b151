"""All replays that are not over: started, counted, listed and cancelled here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from twisted.logger import Logger

from holdfast.changes.past import PastMessages
from holdfast.changes.since import ChangesSince
from holdfast.replay.interfaces import IDelivery, ReplayState, ReplayStatus
from holdfast.replay.pace import FlowControl
from holdfast.replay.replay import Replay
from holdfast.retained.feed import ChangeFeed
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.interfaces import IReplaySource, IRetainedStore
from holdfast.retained.store.values import QueuedRows
from holdfast.watch.log import client_text
from holdfast.watch.metrics import REPLAY_SECONDS, Histogram


class ReplayRegistry:
    """Starts replays and keeps them until they are over."""

    _log = Logger()

    def __init__(
        self,
        *,
        store: IRetainedStore,
        feed: ChangeFeed,
        flow: FlowControl,
        now: Callable[[], int],
        sources: SourceCheck | None = None,
        since: ChangesSince | None = None,
        past: PastMessages | None = None,
    ) -> None:
        """With ``sources``, replays judge the publishers of the messages."""
        self.flow = flow
        #: by number, the oldest first
        self.running: dict[int, Replay] = {}
        #: orders the beginnings and ends of all reads, so that of two reads the later one is known
        self.next_count = count(1).__next__
        #: what has changed since a token; None: everything is replayed
        self.since = since
        #: where replays read the past; None without a history
        self.past = past
        self._store = store
        #: what replays read: the store, perhaps through other parts
        self.source: IReplaySource = store
        self._feed = feed
        feed.import_begun, feed.import_ended = self._include, self._included
        self._now = now
        self._sources = sources
        self._by_client: dict[str, set[Replay]] = {}
        #: replays that wait in their Sessions, because their clients have enough running ones
        self.waiting_in_sessions = 0
        self._last_number = 0
        self._ended = 0
        #: how many messages all replays have delivered since the start
        self.delivered = 0
        #: seconds from the beginning of a replay to its end, of those that have delivered everything
        self.durations = Histogram(REPLAY_SECONDS)
        #: seconds from the beginning of a replay to its first message
        self.first_messages = Histogram(REPLAY_SECONDS)
        #: how many replays wait for a rate now
        self.throttled = 0
        #: is told of each replay that begins, and of each that ends; None while nobody watches
        self.told: Callable[[Replay, bool], None] | None = None

    def start(
        self,
        topic_filter: str,
        delivery: IDelivery,
        cursor: str,
        start: int = 0,
        queued: QueuedRows | None = None,
        source: IReplaySource | None = None,
    ) -> Replay:
        """Start a replay of a (non-shared) Topic Filter, after the topic ``cursor``.

        It reads changes of this node up to the revision ``start`` (0: now), except the ``queued`` ones.
        With a ``source`` it reads that.
        """
        self._last_number += 1
        self.flow.add_client(delivery.client_id)
        replay = Replay(
            topic_filter,
            delivery,
            number=self._last_number,
            store=source or self.source,
            feed=self._feed,
            flow=self.flow,
            registry=self,
            now=self._now,
            sources=self._sources,
            cursor=cursor,
            start=start,
            queued=queued,
        )
        self.running[replay.number] = replay
        self._by_client.setdefault(replay.client_id, set()).add(replay)
        if self.told is not None:
            self.told(replay, True)
        return replay

    def began(self, replay: Replay) -> None:
        """Note that a replay is about to deliver its first message."""
        self.first_messages.observe(replay.age)

    def ended(self, replay: Replay) -> None:
        """Remove a replay that is over."""
        if replay.is_complete:
            self.durations.observe(replay.age)
        del self.running[replay.number]
        self._ended += 1
        self.flow.remove(replay)
        if self.told is not None:
            self.told(replay, False)
        replays = self._by_client[replay.client_id]
        replays.discard(replay)
        if not replays:
            del self._by_client[replay.client_id]
            self.flow.remove_client(replay.client_id)

    def others(self, replay: Replay) -> list[Replay]:
        """Return the other replays of the same client that are not over."""
        return [other for other in self._by_client[replay.client_id] if other is not replay]

    @property
    def unsent_revision(self) -> int:
        """The highest revision of a change that was not sent live, by this process or an earlier one."""
        earlier: int = self._store.unsent_revision
        return max(self._feed.unsent_revision, earlier)

    def _include(self, revision: int) -> None:
        """Let every replay read changes of an import."""
        for replay in self.running.values():
            replay.include(revision)

    def _included(self, revision: int) -> None:
        """Tell every replay that the changes of an import can be read now, or failed."""
        for replay in tuple(self.running.values()):
            replay.included(revision)

    def statuses(self) -> list[ReplayStatus]:
        """Return the status of every replay that is not over, the oldest first."""
        return [replay.status() for replay in self.running.values()]

    def cancel(self, number: int) -> bool:
        """End a replay and, with a reason, its Network Connection. Returns False if no replay has this number.

        A Session that outlives its connection resumes the replay at its cursor when the client is back.
        """
        replay = self.running.get(number)
        if replay is None:
            return False
        self._log.warn(
            "the replay of {filter} to {client} is cancelled",
            filter=client_text(replay.topic_filter),
            client=client_text(replay.client_id),
        )
        replay.cancel()
        return True

    def counts(self) -> dict[str, int]:
        """Return how many replays run, how many of these wait for a rate, and how many wait in their Sessions."""
        return {
            "running": len(self.running),
            "throttled": self.throttled,
            "waiting": self.waiting_in_sessions,
        }

    def totals(self) -> dict[str, int]:
        """Return how many replays ended, and how many messages all replays delivered, since the start."""
        return {"ended": self._ended, "messages": self.delivered}

    def oldest_stalled(self) -> float:
        """Return for how many seconds, at most, a replay has delivered nothing; those that wait for a rate left out."""
        return max(
            (replay.idle for replay in self.running.values() if replay.state is not ReplayState.THROTTLED), default=0.0
        )

    def __len__(self) -> int:
        return len(self.running)
