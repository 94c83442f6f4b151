"""A stand-in for the broker: opens the store in this process and answers the calls of the API at once.

The parts are the broker's. Only the clock differs: a fake clock runs the calls that wait for the end of a reactor turn,
and each change is committed before the call returns. No reactor runs. In the same way :func:`write_past` writes changes
of the past.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, execute, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.retainer import RetainerAPI
from holdfast.admin.call import Answer, Call
from holdfast.admin.callers import this_operator
from holdfast.admin.routing import Route, RoutingTable
from holdfast.broker.identity import compose_account_routes, hash_parameters_of
from holdfast.broker.retainer import compose_api, compose_retainer
from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.periods import is_recorded
from holdfast.commands.interfaces import NO_ARGUMENTS, Access, Arguments, Inaccessible, content_of
from holdfast.config import Config
from holdfast.config.sections.retainer import RetainerConfig
from holdfast.core.messages import RetainedChange
from holdfast.core.tickets import CommitTicket
from holdfast.identity.api_keys import Keys
from holdfast.identity.database_rules import Rules
from holdfast.identity.hashes import new_hash
from holdfast.identity.rule_sources import read_sources
from holdfast.identity.users import Users
from holdfast.retained.administration import Administration, SilentPublisher
from holdfast.retained.configured import payer_limits_of
from holdfast.retained.importing import Merger
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.driver import Connection
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.location import StoreUnusable, shown
from holdfast.storage.maintenance import database_at
from holdfast.storage.store import DurableStore

#: rows merged in one transaction: more than in a broker, since no client waits here
_ROWS = 5_000
#: the node number of changes that commands make
_NODE = 0


class StandIn:
    """The API in this process, over the store itself."""

    reaches_subscribers = False

    def __init__(self, table: RoutingTable, store: str, clock: Clock, durable: DurableStore) -> None:
        self.durable = durable
        self._table = table
        self._store = store
        self._clock = clock
        self._interrupted = False

    def call(self, method: str, path: str, arguments: Arguments = NO_ARGUMENTS, body: bytes = b"") -> Any:
        """Return the content of the answer. The path is below the retainer's API, or whole if it begins with /api/."""
        with self._uninterrupted():
            answer = self._answer(method, path, arguments, body)
        return content_of(answer.status, answer.body)

    def pieces(
        self, path: str, arguments: Arguments = NO_ARGUMENTS, method: str = "GET", body: bytes = b""
    ) -> Iterator[bytes]:
        """Yield a long answer piece by piece."""
        answer = self._answer(method, path, arguments, body)
        if answer.more is None:
            content_of(answer.status, answer.body)
            return
        while True:
            with self._uninterrupted():
                piece = self._result(answer.more())
            if not piece:
                return
            yield piece

    def run(self, work: Callable[[Connection], None]) -> None:
        """Run work in a transaction of its own. Raises its exceptions, and Inaccessible if the database failed."""
        assert self.durable.parts is not None
        of_database = self.durable.parts.database.errors
        failed: list[Exception] = []

        def kept(connection: Connection) -> None:
            try:
                work(connection)
            except of_database:
                raise
            except Exception as error:
                failed[:] = [error]
                raise

        try:
            self._result(self.durable.parts.writer.run(kept))
        except Inaccessible:
            if failed:
                raise failed[0] from None
            raise

    def _answer(self, method: str, path: str, arguments: Arguments, body: bytes) -> Answer:
        whole = path if path.startswith("/api/") else API_PREFIX + path
        answer: Answer = self._result(self._table.answer(Call(method, whole, arguments, body, this_operator())))
        return answer

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Postpone Ctrl-C until the next call. A call does bounded work, so it is finished and its result reported."""
        if self._interrupted:
            raise KeyboardInterrupt

        def interrupt(_number: int, _frame: object) -> None:
            self._interrupted = True

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _result(self, deferred: Deferred[Any]) -> Any:
        """Run the turns that a call takes, and return its result."""
        results: list[Any] = []
        deferred.addBoth(results.append)
        while not results and _is_due(self._clock):
            self._clock.advance(0)
        if not results:
            raise Inaccessible(f"{self._store}: cannot be reached any more")
        if isinstance(results[0], Failure):
            raise Inaccessible(results[0].getErrorMessage())
        return results[0]


@contextmanager
def standing_in(config: Config) -> Iterator[Access]:
    """Open the store in this process. No broker may have it open. Raises StoreUnusable."""
    database = database_at(config.storage.url, Durability.FULL, _NODE, 1.0)
    database.check_present()
    if not database.remote:
        with database.explaining_errors(), database.exclusive_engine().begin():
            pass  # fails if a broker has the database open, even a broker with another data directory
    clock = Clock()
    durable = DurableStore(
        config.storage.url, durability=Durability.FULL, flush_interval=0, max_pending=0, node=_NODE, reactor=clock,
        now=_milliseconds, executor=SynchronousExecutor(waits_for_turn=True), reading_executor=SynchronousExecutor,
        upgrade_command=config.upgrade_command,
    )  # fmt: skip
    accounts = _account_routes(config, durable)
    durable.open()
    try:
        table = RoutingTable(
            [*_api_of(config, durable, clock).routes, *accounts], most_levels=lambda: config.most_topic_levels
        )
        yield StandIn(table, shown(config.storage.url), clock, durable)
    finally:
        failures: list[Failure] = []
        durable.close().addErrback(failures.append)
    if failures:
        raise StoreUnusable(failures[0].getErrorMessage())


def _api_of(config: Config, durable: DurableStore, clock: Clock) -> RetainerAPI:
    def pause() -> Deferred[None]:
        return succeed(None)

    retainer = _recorded(config.retainer, durable)
    parts = compose_retainer(
        retainer,
        durable=durable,
        clock=clock,
        now=_milliseconds,
        keeps_history=False,
        control_characters=config.mqtt.control_characters == "accept",
        payers=payer_limits_of(config),
        max_packet_size=config.max_packet_size,
    )
    nobody = SilentPublisher(parts.retained)  # there are no subscribers here
    return compose_api(
        config.retainer,
        administration=Administration(parts.retained, parts.store, _milliseconds, pause, nobody),
        retained=parts.retained,
        replays=parts.replays,
        history=parts.history,
        telemetry=parts.telemetry,
        publisher=nobody,
        can_change=False,
        location=shown(config.storage.url),
        health=durable.soundness,
        merger=Merger(parts.retained, parts.store, now=_milliseconds, pause=pause, rows=_ROWS),
    )


def _account_routes(config: Config, durable: DurableStore) -> tuple[Route, ...]:
    """Return the routes of the calls about users and rules. The files with rules are read when a rule changes."""
    users = Users(durable, now=_milliseconds, kept=False, required=False)
    sources = cache(partial(read_sources, config))
    rules = Rules(durable, sources=sources, present=None, now=_milliseconds, in_thread=execute)
    parameters = hash_parameters_of(config)
    keys = Keys(durable, now=_milliseconds, kept=False)
    return compose_account_routes(
        users, rules, keys, lambda password: execute(new_hash, password, parameters), _milliseconds
    )


def _recorded(retainer: RetainerConfig, durable: DurableStore) -> RetainerConfig:
    """Return the configuration with the history enabled if the database has an open period, even if the file disables
    it.

    A change that is not recorded would be a gap in that period.
    """
    assert durable.parts is not None
    database = durable.parts.database
    with database.explaining_errors():
        connection = database.connect_reader()
        try:
            recorded = is_recorded(connection.cursor())
        finally:
            connection.close()
    return evolve(retainer, history=evolve(retainer.history, enable=True)) if recorded else retainer


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def write_past(url: str, changes: Iterable[RetainedChange], history_since: int) -> None:
    """Write changes into the database at a URL, each as a broker does at the time of the change.

    The changes are in the order of their times, and their revisions follow these times. The history begins at the time
    ``history_since``, in milliseconds since the epoch: it has the messages that were retained then, and every change
    from then on. A missing SQLite database is created. Raises StoreUnusable.
    """
    before: list[RetainedChange] = []
    after: list[RetainedChange] = []
    for change in changes:
        (after if change.changed_at >= history_since else before).append(change)
    _put_at_their_times(url, before, None)
    _put_at_their_times(url, after, history_since)


def _put_at_their_times(url: str, changes: Iterable[RetainedChange], history_since: int | None) -> None:
    """Put changes into the database at a URL, and into a history that begins at a time; None: into no history."""
    clock, at = Clock(), history_since or 0
    durable = DurableStore(
        url, durability=Durability.PROCESS, node=_NODE, reactor=clock, now=lambda: at,
        executor=SynchronousExecutor(waits_for_turn=True), reading_executor=SynchronousExecutor,
    )  # fmt: skip
    limits = HistoryLimits(enable=history_since is not None, keep=None)

    def flushed() -> CommitTicket:
        return store.flushed()

    history = RetainedHistory(durable, flushed=flushed, clock=clock, now=lambda: at, limits=limits)
    store = SQLRetainedStore(durable, recorder=history.recorder)
    failures: list[Exception] = []

    def commit() -> None:
        while _is_due(clock):
            clock.advance(0)
        if failures:
            raise StoreUnusable(str(failures[0]))

    durable.open()
    history.startService()
    commit()  # the baseline
    try:
        for number, change in enumerate(changes, 1):
            at = change.changed_at
            revision = store.next_revision()
            message = None if change.message is None else evolve(change.message, revision=revision)
            ticket = store.put(evolve(change, revision=revision, message=message))
            ticket.when_settled(lambda failure: failures.append(failure) if failure is not None else None)
            if not number % _ROWS:
                commit()
        commit()
    finally:
        history.stopService()
        closed: list[Failure] = []
        durable.close().addErrback(closed.append)
    if closed:
        raise StoreUnusable(closed[0].getErrorMessage())
    if failures:  # of the last attempt, while it was closed
        raise StoreUnusable(str(failures[0]))


def _is_due(clock: Clock) -> bool:
    """Tell whether a call waits for the end of the turn. The writer does, to gather a commit group."""
    return any(call.getTime() <= clock.seconds() for call in clock.getDelayedCalls())
