"""The replays of one Session over one Network Connection: begun, woken, resumed after a disconnect, and saved."""

from __future__ import annotations

from attrs import frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.auth.interfaces import IAuthorizer
from holdfast.retained.replay.replay import Replay
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.counters import Counters
from holdfast.sessions.replays.replay_delivery import ReplayDelivery
from holdfast.sessions.session.session import Session

#: seconds between two savings of the positions of running replays, for Sessions that outlive the process
SAVE_INTERVAL = 1.0


@frozen
class _Running:
    replay: Replay
    delivery: ReplayDelivery


class Replays:
    """The running replays by Topic Filter. The Session and the outbox of the connection call :meth:`wake`."""

    def __init__(
        self,
        *,
        link: IClientLink,
        session: Session,
        retained: IRetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        clock: IReactorTime,
    ) -> None:
        self._link = link
        self._session = session
        self._retained = retained
        self._authorizer = authorizer
        self._counters = counters
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._saving: IDelayedCall | None = None

    def begin(self, topic_filters: list[str]) -> None:
        """Begin the replays of new or renewed subscriptions."""
        for topic_filter in topic_filters:
            self._start(topic_filter, "")
        self.share_window()

    def stop(self, topic_filter: str) -> None:
        """Stop the replay of a subscription that is removed, if one runs."""
        running = self._running.pop(topic_filter, None)
        if running is not None:
            running.replay.stop()

    def reread(self, topic_filter: str) -> None:
        """Let a replay continue under new options of its subscription, if one runs."""
        running = self._running.get(topic_filter)
        if running is not None:
            running.replay.reread()

    def resume(self) -> None:
        """Continue the replays that a disconnect has interrupted, each after its last topic."""
        for topic_filter, cursor in self._session.replay_positions.take_suspended().items():
            if topic_filter in self._session.subscriptions:
                self._start(topic_filter, cursor)
        self.share_window()

    def suspend(self) -> None:
        """Stop all replays because the connection is gone, and remember their cursors."""
        # Saved once more, since the positions may be up to SAVE_INTERVAL old.
        self.save()
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        for topic_filter, running in self._running.items():
            self._session.replay_positions.suspend(topic_filter, running.replay.cursor)
            running.replay.stop()
        self._running.clear()
        self.share_window()

    def wake(self) -> None:
        """Let the replays look for room."""
        for running in list(self._running.values()):  # a woken replay may finish, and leave the dictionary
            running.replay.wake()

    def finished(self, topic_filter: str) -> None:
        """Forget a replay that has delivered everything."""
        self._running.pop(topic_filter, None)
        position = self._session.replay_positions.get(topic_filter)
        if position is not None:
            position.delivered = True
            self.save()
        self.share_window()

    def share_window(self) -> None:
        """Share the window between live messages and the replays that have begun."""
        self._session.share_window(any(running.delivery.begun for running in self._running.values()))

    def save(self) -> None:
        """Store the positions of the replays, where they have changed."""
        self._session.save_replay_positions(self._cursor_of)

    def _cursor_of(self, topic_filter: str) -> str:
        running = self._running.get(topic_filter)
        return "" if running is None else running.replay.cursor

    def _start(self, topic_filter: str, cursor: str) -> None:
        self.stop(topic_filter)
        if self._session.record.durable:
            self._session.replay_positions.begin(topic_filter, cursor)
            self._save_later()
        # A new delivery notes which messages are queued now: they are sent before the replay.
        delivery = ReplayDelivery(
            topic_filter=topic_filter,
            link=self._link,
            session=self._session,
            replays=self,
            authorizer=self._authorizer,
            counters=self._counters,
        )
        replay = self._retained.replay(topic_filter, delivery, cursor)
        self._running[topic_filter] = _Running(replay, delivery)

    def _save_later(self) -> None:
        if self._saving is None and self._session.replay_positions:
            self._saving = self._clock.callLater(SAVE_INTERVAL, self._save_and_go_on)

    def _save_and_go_on(self) -> None:
        self._saving = None
        try:
            self.save()
        finally:  # positions that could not be saved now are saved with the next ones
            self._save_later()
