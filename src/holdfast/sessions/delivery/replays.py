"""The replays of one Session over one Network Connection: begun, woken, resumed after a disconnect, and saved."""

from __future__ import annotations

from functools import partial

from attrs import frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.changes.since import SinceSource
from holdfast.core.extensions import FULL, past_filter
from holdfast.core.topics import is_of_past
from holdfast.identity.interfaces import IAuthorizer
from holdfast.replay.interfaces import IDelivery
from holdfast.replay.registry import ReplayRegistry
from holdfast.replay.replay import Replay
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import QueuedRows
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import ErrorGuard
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.replay_delivery import ReplayDelivery
from holdfast.sessions.delivery.replay_positions import RESTORED, ReplayPosition
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.state import ASKED_LATE, NOT_KEPT, PendingMarker
from holdfast.storage.revisions import time_of

#: seconds between two savings of the positions of running replays, for Sessions that outlive the process
SAVE_INTERVAL = 1.0


@frozen
class _Running:
    replay: Replay | Unreplayed
    delivery: ReplayDelivery


class Replays:
    """The running replays by Topic Filter. The Session and the outbox of the connection call :meth:`wake`.

    At most ``retainer.flow_control.max_replays_per_client`` run; the others wait as entries of the Session's
    ``replay_positions``, which cost little.
    """

    def __init__(
        self,
        *,
        link: Connection,
        session: Session,
        store: IRetainedStore,
        replay_registry: ReplayRegistry,
        authorizer: IAuthorizer,
        counters: Counters,
        clock: IReactorTime,
    ) -> None:
        self._link = link
        self._session = session
        self._store = store
        self._replay_registry = replay_registry
        self._authorizer = authorizer
        self._counters = counters
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._saving: IDelayedCall | None = None
        self._resumed_at = 0  # the revision at CONNECT
        self._waiting = 0  # how many waiting replays the retainer knows of

    def new_position(self) -> ReplayPosition:
        """Return the position of a replay that is asked for now."""
        return ReplayPosition(self._store.next_revision(), self._session.attendance.connections)

    def begin(self, topic_filter: str, position: ReplayPosition) -> None:
        """Begin the replay of a new or renewed subscription, or let it wait for its place."""
        self._stop(topic_filter)
        self._session.replay_positions.add(topic_filter, position)
        self._start_waiting()

    def due_marker(self, topic_filter: str) -> PendingMarker | None:
        """Return the marker that the present replay of a Subscription owes the Client, None if it owes none."""
        position = self._session.replay_positions.get(topic_filter)
        if position is None or (position.delivered and not position.awaits_acknowledgements):
            return None
        return position.marker

    def mark_end(self, topic_filter: str, marker: PendingMarker) -> ReplayPosition:
        """Let a marker follow the replay that a Subscription has, or come now if it has none.

        Returns the position to store. :meth:`begin_marked` has to follow.
        """
        position = self._session.replay_positions.get(topic_filter)
        if position is None:
            position = ReplayPosition(0, self._session.attendance.connections)
        elif position.marker is not None:
            marker.take_over(position.marker)
        else:
            marker.replayed = True
            if position.cursor or topic_filter in self._running:
                marker.left_out.add(ASKED_LATE)
        position.marker = marker
        return position

    def begin_marked(self, topic_filter: str, position: ReplayPosition) -> None:
        """Let the marker have its turn."""
        positions = self._session.replay_positions
        if positions.get(topic_filter) is None:
            positions.add(topic_filter, position)
        else:
            positions.again(topic_filter)
        self._start_waiting()

    def stop(self, topic_filter: str) -> None:
        """Stop the replay of a subscription that is removed, if there is one."""
        self._stop(topic_filter)
        self._session.replay_positions.forget(topic_filter)
        self._start_waiting()

    def reread(self, topic_filter: str, is_queued_alike: bool) -> None:
        """Let a replay continue under new options of its subscription, if there is one.

        ``is_queued_alike`` tells that the old options queue the same messages. Otherwise the cut is void.
        """
        position = self._session.replay_positions.get(topic_filter)
        running = self._running.get(topic_filter)
        if position is not None and not is_queued_alike and not is_of_past(topic_filter):
            position.cut = 0
            if running is not None:
                running.replay.forget_queued()
        if running is not None:
            running.replay.reread()

    def resume(self) -> None:
        """Continue the replays that a disconnect has interrupted, each after its last topic."""
        if self._session.replay_positions.waiting:
            self._resumed_at = self._store.next_revision()
            self._start_waiting()
            self.share_window()

    def suspend(self) -> None:
        """Stop all replays because the connection is gone, and remember their cursors."""
        # Saved once more, since the positions may be up to SAVE_INTERVAL old.
        self.save()
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        self._session.replay_positions.interrupt(self._cursor_of)
        for running in self._running.values():
            running.replay.stop()
        self._running.clear()
        self._replay_registry.waiting_in_sessions -= self._waiting
        self._waiting = 0
        self.share_window()

    def wake(self) -> None:
        """Let the replays look for room."""
        for running in list(self._running.values()):  # a woken replay may finish, and leave the dictionary
            running.replay.wake()

    def finished(self, topic_filter: str) -> None:
        """Forget a replay that has delivered everything, and begin the next one that waits."""
        ended = self._running.pop(topic_filter, None)
        position = self._session.replay_positions.get(topic_filter)
        if ended is not None and position is not None:
            position.cursor = ended.replay.cursor
            self._session.replay_positions.delivered(topic_filter, self._session.record.durable)
            self.save_position(topic_filter)
            self._start_waiting()
        self.share_window()

    def log_left_out(self, topic_filter: str, count: int) -> None:
        """Log that messages are longer than the Client's Maximum Packet Size."""
        self._link.client_log.info(
            "a replay leaves out messages",
            f"{count} for {{}} above its Maximum Packet Size of {self._link.maximum_packet_size}",
            topic_filter,
        )

    def share_window(self) -> None:
        """Share the window between live messages and the replays that have begun."""
        self._session.share_window(any(running.delivery.begun for running in self._running.values()))

    def save(self) -> None:
        """Store the positions of the replays, where they have changed."""
        if self._session.record.durable:
            self._session.save_replay_positions(self._cursor_of)

    def save_position(self, topic_filter: str) -> None:
        """Store the position of one replay, where it has changed."""
        if self._session.record.durable:
            self._session.save_replay_position(topic_filter, self._cursor_of(topic_filter))

    def _cursor_of(self, topic_filter: str) -> str:
        running = self._running.get(topic_filter)
        return "" if running is None else running.replay.cursor

    def _stop(self, topic_filter: str) -> None:
        running = self._running.pop(topic_filter, None)
        if running is not None:
            running.replay.stop()

    def _start_waiting(self) -> None:
        """Begin the replays that wait, in their order, while there are places."""
        positions = self._session.replay_positions
        while len(self._running) < self._replay_registry.flow.settings.max_replays_per_client:
            found = positions.next()
            if found is None:
                break
            self._start(*found)
        self._replay_registry.waiting_in_sessions += len(positions.waiting) - self._waiting
        self._waiting = len(positions.waiting)

    def _start(self, topic_filter: str, position: ReplayPosition) -> None:
        # A new delivery notes which messages are queued now: they are sent before the replay.
        delivery = ReplayDelivery(
            topic_filter=topic_filter,
            link=self._link,
            session=self._session,
            replays=self,
            authorizer=self._authorizer,
            counters=self._counters,
            position=position,
            cursor=partial(self._cursor_of, topic_filter),
        )
        replay: Replay | Unreplayed
        if position.marker is not None and not position.marker.replayed:
            replay = Unreplayed(delivery, self._clock, self._link.guard)
        elif is_of_past(topic_filter):
            replay = self._replay_of_past(topic_filter, position, delivery)
        else:
            start, queued = self._rows_of(topic_filter, position)
            source = None
            if position.since is not None:
                source = self._changes_since(position, position.since, delivery)
            replay = self._replay_registry.start(topic_filter, delivery, position.cursor, start, queued, source)
        self._running[topic_filter] = _Running(replay, delivery)
        self._save_later()

    def _changes_since(self, position: ReplayPosition, turn: int, delivery: ReplayDelivery) -> SinceSource | None:
        """Return the source of a replay of changes; None if they are void or not stored: everything is replayed."""
        since = self._replay_registry.since
        if since is None or (position.connection == RESTORED and since.follows_kill):
            position.since, position.cursor = None, ""
            if position.marker is not None:
                position.marker.since = FULL
            return None
        return since.source(turn, partial(delivery.lost, NOT_KEPT))

    def _replay_of_past(
        self, topic_filter: str, position: ReplayPosition, delivery: ReplayDelivery
    ) -> Replay | Unreplayed:
        """Return a replay of the past. The cut tells when it was asked for: ``-1h`` is the same time after a kill."""
        past = self._replay_registry.past
        if past is None:
            delivery.lost()
            return Unreplayed(delivery, self._clock, self._link.guard)
        wanted = past_filter(topic_filter, time_of(position.cut))
        source = past.source(self._session.client_id, wanted, delivery.lost, delivery.lacks_topics)
        return self._replay_registry.start(topic_filter, delivery, position.cursor, position.cut, None, source)

    def _rows_of(self, topic_filter: str, position: ReplayPosition) -> tuple[int, QueuedRows | None]:
        """Return the revision up to which the replay reads, and the rows above its cut that it leaves out."""
        session = self._session
        positions = session.replay_positions
        unsent = self._replay_registry.unsent_revision
        if position.connection == session.attendance.connections:
            # It has only waited for a place, and later changes were sent live, except those of operators.
            if unsent > position.cut:
                positions.recut(position, self._store.next_revision())
            return position.cut, None
        start = self._resumed_at if unsent <= self._resumed_at else self._store.next_revision()
        least_qos = self._least_queued_qos(topic_filter)
        # After a restart it is unknown whether the authorizer had answered about each message.
        is_known = position.connection != RESTORED or not self._authorizer.checks_delivery
        if position.cut > max(session.void_cuts, unsent) and least_qos is not None and is_known:
            return start, QueuedRows(position.cut, self._resumed_at, least_qos)
        positions.recut(position, start)
        return start, None

    def _least_queued_qos(self, topic_filter: str) -> int | None:
        """Return from which QoS on messages for the subscription were queued, None if none certainly were."""
        qos = self._session.subscriptions[topic_filter].qos
        if self._session.replay_positions.upgraded:  # the higher QoS counts
            return 0 if qos else 1
        return 1 if qos else None

    def _save_later(self) -> None:
        if self._saving is None and self._session.record.durable and self._session.replay_positions:
            self._saving = self._clock.callLater(SAVE_INTERVAL, self._save_and_go_on)

    def _save_and_go_on(self) -> None:
        self._saving = None
        with self._link.guard:
            self.save()
            self._save_later()


# A Subscription without a replay whose marker is due: it has a place among the replays, and reads nothing.
#
# The marker leaves in a turn of its own, so that many of them share the turns of the reactor with other Clients.


class Unreplayed:
    """Sends the marker of one Subscription when all messages that are queued now have left."""

    #: nothing was delivered
    cursor = ""

    def __init__(self, delivery: IDelivery, clock: IReactorTime, guard: ErrorGuard) -> None:
        self._delivery = delivery
        self._guard = guard
        self._beginning: IDelayedCall | None = clock.callLater(0, self._begin)
        self._is_over = False

    def wake(self) -> None:
        """Look for room again."""
        if self._beginning is None and not self._is_over:
            self._try()

    def stop(self) -> None:
        """End at once."""
        self._is_over = True
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None

    def reread(self) -> None:
        """Do nothing: nothing is held."""

    def forget_queued(self) -> None:
        """Do nothing: nothing is left out."""

    def _begin(self) -> None:
        self._beginning = None
        with self._guard:
            self._try()

    def _try(self) -> None:
        if self._delivery.room() > 0 and self._delivery.conclude():
            self.stop()
            self._delivery.finished()
