"""This process as a member of its cluster: it joins, renews its lease, holds its work without one, takes over, leaves.

How it works. A timer of the reactor sends a renewal three times in each lease; a thread of its own waits for the
answer. So a reactor that is blocked loses its lease, and an import that holds the writer does not.

The reactor asks :attr:`Membership.deadline` before it serves a connection and before its timers. If the deadline has
passed, :meth:`Membership.hold` keeps the reactor's thread until a renewal is answered. Nothing is read, acknowledged or
delivered meanwhile, and no timer runs: no Keep Alive ends, and no Will is due. For the clients, the broker stands still
as if its machine did. They go on as if nothing had been, or, if the lease is lost, their connections end.

The acknowledgement of a commit needs no lease: the database has refused it, or it is true.

From the dead, the member with the first look takes over. A thread claims the place of the dead node
(:func:`holdfast.cluster.members.taken_place`); then this node's writer hands over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.cluster.lease import Lease, State
from holdfast.cluster.members import (
    Candidate,
    HandedOver,
    LeaseConnection,
    Place,
    Renewal,
    StillLeased,
    hand_over,
    join,
    taken_place,
)
from holdfast.core.tickets import StorageFailure
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.database import Database
from holdfast.storage.executor import IExecutor, ThreadExecutor
from holdfast.storage.location import StoreUnusable
from holdfast.storage.postgres import MemberPostgres, PostgresDatabase
from holdfast.storage.postgres_values import JOINING
from holdfast.storage.store import DurableStore
from holdfast.watch.lazy_log import LogThrottle

#: how many renewals are sent in the time of a lease
RENEWALS = 3
#: seconds of an answer that tells the difference of the clocks
_QUICK = 1.0
#: seconds between two tries while the reactor's thread is held
_PAUSE = 0.25


def boottime() -> float:
    """Return seconds of the clock that also counts while the process is stopped and the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@frozen
class _Answer:
    """What became of a renewal, and how far the machine's clock was ahead of the database's (seconds), if known."""

    outcome: Renewal | Exception
    offset: float | None = None


class Membership:
    """The membership of this process, from its joining to its end.

    ``lease`` and ``grace`` are in seconds. ``seconds`` never stops, ``wall`` are seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        candidate: Candidate,
        *,
        lease: float,
        grace: float,
        reactor: Any,
        executor: IExecutor | None = None,
        seconds: Callable[[], float] = boottime,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.candidate = candidate
        self._length = lease
        self._grace = grace
        self._executor = executor or ThreadExecutor(reactor, "holdfast-lease")
        self._claiming = ThreadExecutor(reactor, "holdfast-takeover")
        self._seconds = seconds
        self._wall = wall
        self._database: PostgresDatabase
        self._durable: DurableStore
        self._on_lost: Callable[[str], None]
        self._on_inherited: Callable[[HandedOver], None]
        #: is told of all nodes that are not removed, after each renewal
        self.on_places: Callable[[Sequence[Place]], None] = _tell_nobody
        self._places: Sequence[Place] = ()
        #: is told after each renewal whether an operator has asked this node to drain
        self.on_draining: Callable[[bool], None] = _tell_nobody
        #: this incarnation, 0 before it has joined
        self.incarnation = 0
        self._connection: LeaseConnection | None = None
        self._starting = NOT_STARTING
        self._earlier: StillLeased | None = None
        self._answers: SimpleQueue[_Answer] = SimpleQueue()
        self._lease: Lease | None = None
        self._worst: float | None = None
        self._is_lost = False
        self._is_claiming = False
        self._tried = 0  #: the dead node that this one has tried last to take over from
        self._throttle = LogThrottle(self._log, reactor.seconds, 60, write=self._log.warn)
        self._job = PeriodicJob(self._renew, name="renewing the lease", interval=lease / RENEWALS, clock=reactor)
        #: until when the reactor may serve, in ``seconds``; without end while this node is not a member
        self.deadline = float("inf")
        #: by how many seconds the machine's clock is ahead of the database's; None before the first renewal
        self.offset: float | None = None

    def attach(
        self, durable: DurableStore, *, on_lost: Callable[[str], None], on_inherited: Callable[[HandedOver], None]
    ) -> None:
        """Use these parts; call it before the store is opened.

        ``on_lost`` is called once, in the reactor thread, when the lease is lost for good, and told why. It closes all
        connections. ``on_inherited`` is called after each hand-over from a dead node.
        """
        self._durable = durable
        self._on_lost = on_lost
        self._on_inherited = on_inherited

    # --- joining and leaving ------------------------------------------------------------------------------------------

    def join(self, database: Database) -> Database:
        """Begin an incarnation of this node; return the database for it. Raises :class:`StoreUnusable`.

        A lease of an earlier process of this node has to end first: then it is a StoreLate. If that lease is renewed
        meanwhile, the process is alive, and this one must not join.
        """
        assert isinstance(database, PostgresDatabase)
        try:
            incarnation = self.incarnation = join(database, self.candidate)
        except StillLeased as late:
            earlier, self._earlier = self._earlier, late
            if earlier is not None and (earlier.incarnation, earlier.until) != (late.incarnation, late.until):
                raise StoreUnusable(
                    f"{database.location}: node.id = {self.candidate.node} is in use by a living member; give each"
                    " broker an id of its own"
                ) from None
            raise
        self._earlier = None
        self._database = database
        self._connection = LeaseConnection(
            database, self.candidate.node, incarnation, self.candidate.lease, self._length / RENEWALS
        )
        self._log.info(
            'node {node} joins the cluster "{cluster}" as incarnation {incarnation}',
            node=self.candidate.node, cluster=self.candidate.cluster, incarnation=incarnation,
        )  # fmt: skip
        self._starting = Starting(self._connection, self._length / RENEWALS)
        return MemberPostgres.of(database, incarnation)

    def begin(self) -> None:
        """Become a member: the stored state is read, and listeners open next. Raises :class:`StoreUnusable`."""
        assert self._connection is not None
        self._starting.end()
        sent = self._seconds()
        try:
            renewal = self._connection.renew()
        except StorageFailure as failure:
            raise StoreUnusable(str(failure)) from failure
        if not renewal.renewed:
            raise StoreUnusable(f"{self._database.location}: another process has joined as node {self.candidate.node}")
        self._lease = Lease(length=self._length, grace=self._grace, sent=sent)
        self.deadline = self._lease.deadline
        self._job.start(self._job.interval)
        self._note_places(renewal.places)
        self.on_draining(renewal.drains)

    def withdraw(self) -> None:
        """End the lease of a start that has failed or is late, so that the next one need not wait for its end."""
        self._job.stop()
        self.deadline = float("inf")
        self._lease = None
        self._starting.end()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.leave()
            except StorageFailure as failure:
                self._log.warn("the lease could not be ended, and ends by itself: {error}", error=failure)
            connection.close()

    @as_deferred
    async def leave(self) -> None:
        """End the lease, after the last commit: others take over at once, and the next process need not wait."""
        self._job.stop()
        self.deadline = float("inf")
        self._starting.end()
        connection, self._connection = self._connection, None
        self._lease = None
        if connection is None:
            return
        left: Deferred[object] = Deferred()

        def end() -> None:
            connection.leave()
            connection.close()

        self._executor.call(end, left.callback)
        outcome = await left
        if isinstance(outcome, BaseException):
            self._log.warn("the lease could not be ended, and ends by itself: {error}", error=outcome)
        self._executor.stop()
        if not self._is_claiming:  # else its thread may wait for a server that hangs; it ends with the process
            self._claiming.stop()

    # --- the lease ----------------------------------------------------------------------------------------------------

    def left(self) -> float:
        """Return how many seconds the lease lasts; negative: it has ended."""
        return self.deadline - self._seconds()

    def take_worst(self) -> float | None:
        """Return the fewest seconds that were left at any renewal since the last call, None if there was none."""
        worst, self._worst = self._worst, None
        return worst

    @property
    def other_configurations(self) -> tuple[int, ...]:
        """The living nodes whose configuration is another one, as far as members share it."""
        own = self.candidate.config_hash
        return tuple(place.node for place in self._places if place.lives and place.config_hash != own)

    def _note_places(self, places: Sequence[Place]) -> None:
        self._places = places
        self.on_places(places)

    def hold(self) -> None:
        """Keep the reactor's thread until this node may serve, or has lost its lease. Call it behind the deadline."""
        lease = self._lease
        if lease is None or self._is_lost:
            return
        begun = self._seconds()
        self._note_left()
        told = False
        while self._look() is State.WAITING:
            if not lease.is_asking:
                self._send()
            with _patience():
                self._take(self._answers.get(timeout=_PAUSE))
                if lease.look(self._seconds()) is State.WAITING and not lease.is_asking:
                    time.sleep(_PAUSE)
            if not told and self._seconds() - begun > 2 * _PAUSE:
                told = True
                self._log.warn(
                    "the lease of this node has ended and the database does not answer: no client is served, for"
                    " {grace:g} s at most",
                    grace=self._grace,
                )
        if told and not self._is_lost:
            self._log.info("the database answers again: clients are served")

    def supersede(self) -> None:
        """Note that the writer has found another incarnation of this node."""
        if self._lease is not None:
            self._lease.supersede()
            self._look()

    def _renew(self) -> None:
        """Send a renewal, unless one is under way."""
        lease = self._lease
        if lease is not None and not lease.is_asking and self._look() is not State.FENCED:
            self._note_left()
            self._send()

    def _note_left(self) -> None:
        left = self.left()
        self._worst = left if self._worst is None else min(self._worst, left)

    def _send(self) -> None:
        connection, lease = self._connection, self._lease
        if connection is None or lease is None:
            return
        lease.sent(self._seconds())
        self._executor.call(partial(self._ask, connection), self._answered)

    def _ask(self, connection: LeaseConnection) -> None:
        """Put the answer where a thread that is held takes it too. Runs in the lease's thread."""
        sent = self._wall()
        try:
            renewal = connection.renew()
        except Exception as error:  # noqa: BLE001 - every failure counts the same: no answer
            self._answers.put(_Answer(error))
            return
        took = self._wall() - sent
        # An answer that took long tells little: the process may have been stopped meanwhile.
        offset = sent + took / 2 - renewal.now / 1000 if 0 <= took < _QUICK else None
        self._answers.put(_Answer(renewal, offset))

    def _answered(self, _: object) -> None:
        with _patience():
            self._take(self._answers.get_nowait())

    def _take(self, answer: _Answer) -> None:
        lease, now = self._lease, self._seconds()
        if lease is None:
            return
        outcome = answer.outcome
        if isinstance(outcome, Exception):
            lease.failed(now)
            self._log.debug("the lease was not renewed: {error}", error=outcome)
        else:
            lease.answered(now, outcome.renewed)
            self.offset = self.offset if answer.offset is None else answer.offset
            if outcome.renewed:
                self._note_places(outcome.places)
                self.on_draining(outcome.drains)
            if outcome.dead and lease.may_take_over(now):
                # The next one after the last one tried: a node that cannot be taken over holds up no other.
                self._claim(next((node for node in outcome.dead if node > self._tried), outcome.dead[0]))
        self._look()

    def _look(self) -> State:
        """Return the state; tell if the lease is lost."""
        lease = self._lease
        assert lease is not None
        state = lease.look(self._seconds())
        self.deadline = float("inf") if state is State.FENCED else lease.deadline  # fenced: all connections are closed
        if state is State.FENCED and not self._is_lost:
            self._is_lost = True
            self._job.stop()
            self._on_lost(
                f'node {self.candidate.node} has lost its lease in the cluster "{self.candidate.cluster}": another'
                " incarnation may have begun"
            )
        return state

    # --- taking over from the dead ------------------------------------------------------------------------------------

    def _claim(self, node: int) -> None:
        """Take over from a dead node: claim its place, hand over, and give the place back."""
        if self._is_claiming:
            return
        self._is_claiming = True
        self._tried = node
        self._take_over(node).addErrback(
            lambda failure: self._throttle.log(
                str(node), f"node {node} is dead, and is not taken over yet: {failure.getErrorMessage()}"
            )
        ).addCallback(lambda _: setattr(self, "_is_claiming", False))

    @as_deferred
    async def _take_over(self, node: int) -> None:
        place = ExitStack()
        try:
            if not await self._in_thread(partial(self._occupy, place, node)):
                return
            parts = self._durable.parts
            if parts is None:
                return
            inherited = await parts.writer.run(
                lambda connection: hand_over(connection.cursor(), node, self.candidate.node)
            )
            # At once: what follows may fail, and nobody else takes over any more.
            self._log.warn(
                "node {node} is dead: this node has taken over {wills} Wills and {leases} leases from it",
                node=node, wills=len(inherited.wills), leases=len(inherited.leases),
            )  # fmt: skip
            self._on_inherited(inherited)
        finally:
            await self._in_thread(place.close)

    def _occupy(self, place: ExitStack, node: int) -> bool:
        """Claim the place of a dead node for as long as ``place`` is open; False if another one joins or takes over."""
        with self._database.explaining_errors():
            connection = place.enter_context(self._database.open_connection())
            connection.execute("SET synchronous_commit = on")
            (alone,) = connection.execute("SELECT pg_try_advisory_lock(?, 0)", (JOINING,)).fetchone() or (False,)
            if alone:
                place.enter_context(taken_place(connection, node, self._database.location))
        return bool(alone)

    def _in_thread(self, work: Callable[[], Any]) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()

        def done(outcome: Any) -> None:
            answer.errback(outcome) if isinstance(outcome, BaseException) else answer.callback(outcome)

        self._claiming.call(work, done)
        return answer


class Starting:
    """Renews the lease of a node that joins, in a thread: it restores its Sessions, which may take longer."""

    def __init__(self, connection: LeaseConnection | None, interval: float) -> None:
        self._over = Event()
        self._thread: Thread | None = None
        if connection is not None:
            work = partial(self._renew, connection, interval)
            self._thread = Thread(target=work, name="holdfast-joining", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Renew no more. The connection is free afterwards."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _renew(self, connection: LeaseConnection, interval: float) -> None:
        while not self._over.wait(interval):
            with suppress(StorageFailure):  # the next try may do; if the lease ends, the node cannot begin
                connection.renew("joining")


NOT_STARTING = Starting(None, 0)


def _tell_nobody(_news: object) -> None:
    """Tell nobody."""


@contextmanager
def _patience() -> Iterator[None]:
    """Do without an answer that is not there yet, or was taken by the thread that was held."""
    try:
        yield
    except Empty:
        return
