"""How commands and jobs reach the retained messages: through the running broker, or in its place where none runs.

Either way they make the same calls and get the same answers.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlencode

from attrs import asdict, evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from holdfast.admin.calls import Answer, Call
from holdfast.admin.control import NAME, Place
from holdfast.admin.retainer import PREFIX, RetainerAPI
from holdfast.admin.settings import Settings
from holdfast.config import Config
from holdfast.config.sections.retainer import RetainerConfig
from holdfast.retained.administration import Administration
from holdfast.retained.configured import flow_of, limits_of, store_of
from holdfast.retained.history.history import HistoryLimits, RetainedHistory
from holdfast.retained.history.periods import is_recorded
from holdfast.retained.history.restoring import Restorer
from holdfast.retained.importing.merging import Merger
from holdfast.retained.service import RetainedMessages
from holdfast.storage.bridge import SynchronousBridge
from holdfast.storage.database import Durability, StoreUnusable
from holdfast.storage.engine import database_at
from holdfast.storage.lock import DirectoryInUse, DirectoryLock, DirectoryUnusable
from holdfast.storage.status import soundness
from holdfast.storage.store import DurableStore
from holdfast.storage.url import shown

#: seconds a broker is given to say something
_PATIENCE = 60.0
#: how often one who has the data directory is asked, and the seconds between
_ATTEMPTS = 50
_PAUSE = 0.1
_PIECE = 1 << 16
#: rows merged at once where nobody waits for a turn
_ROWS = 5_000
#: the node in whose name tools write
_TOOLS = 0

Arguments = Mapping[str, str]
_NONE: Arguments = MappingProxyType({})


class Inaccessible(Exception):
    """Nobody answers, or the answer is no; the text says why."""


class _Broken(Inaccessible):
    """The connection to the broker broke."""


class Access(Protocol):
    """Makes calls of the API."""

    def call(self, method: str, path: str, arguments: Arguments = ..., body: bytes = ...) -> Any:
        """Return what is answered, from JSON. Raises :class:`Inaccessible`."""

    def pieces(self, path: str, arguments: Arguments = ..., method: str = ..., body: bytes = ...) -> Iterator[bytes]:
        """Get a long answer piece by piece. Raises :class:`Inaccessible`, also in the middle."""


@contextmanager
def access_to(config: Config) -> Iterator[Access]:
    """Give access to the messages of a broker, running or not.

    Raises :class:`Inaccessible`, StoreUnusable or DirectoryUnusable.
    """
    broker = _Broker(config)
    lock = DirectoryLock(config.data_dir)
    if not _locked(broker, lock):
        yield broker
        return
    try:
        with standing_in(config) as stand_in:
            yield stand_in
    finally:
        lock.release()


def _locked(broker: _Broker, lock: DirectoryLock) -> bool:
    """Lock the data directory, unless a broker answers. Raises :class:`Inaccessible` or DirectoryUnusable.

    Who has the lock and does not answer starts, or is about to end: a broker, or the last process of a job that was
    killed. It is waited for.
    """
    for left in reversed(range(_ATTEMPTS)):
        if broker.answers():
            return False
        try:
            if lock.directory.is_dir():  # where there is none, no broker runs in it
                lock.acquire()
        except DirectoryInUse as error:
            if not left:
                raise DirectoryUnusable(f"{error}; nobody answers at {lock.directory / NAME}") from error
            time.sleep(_PAUSE)
        else:
            break
    return True


class _Connection(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def __init__(self, config: Config) -> None:
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = config.data_dir / NAME

    def connect(self) -> None:
        place = Place(self._path)
        try:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(place.address)
        finally:
            place.close()


class _Broker:
    """The running broker."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connection = _Connection(config)

    def answers(self) -> bool:
        """Tell whether there is one. Raises :class:`Inaccessible` where it may not be asked, or has other messages."""
        try:
            self._connection.connect()
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return False
        except OSError as error:
            path = self._config.data_dir / NAME
            raise Inaccessible(f"{path}: {error.strerror}; run this as the broker's user") from error
        try:
            store, wanted = self.call("GET", "/info")["store"], shown(self._config.storage.url)
        except _Broken:
            return False  # it is about to end: it has taken the connection, and no more
        if store != wanted:
            raise Inaccessible(
                f"the broker of {self._config.data_dir} has its messages in {store}, not in {wanted}; "
                "name a --data-dir of its own for the other database"
            )
        return True

    def call(self, method: str, path: str, arguments: Arguments = _NONE, body: bytes = b"") -> Any:
        with self._told():
            response = self._request(method, path, arguments, body)
            return _content(response.status, response.read())

    def pieces(
        self, path: str, arguments: Arguments = _NONE, method: str = "GET", body: bytes = b""
    ) -> Iterator[bytes]:
        with self._told():
            response = self._request(method, path, arguments, body)
            if response.status != http.client.OK:
                _content(response.status, response.read())
            while piece := response.read1(_PIECE):
                yield piece

    def _request(self, method: str, path: str, arguments: Arguments, body: bytes = b"") -> http.client.HTTPResponse:
        uri = f"{PREFIX}{path}?{urlencode(arguments)}" if arguments else f"{PREFIX}{path}"
        self._connection.request(method, uri, body or None)
        return self._connection.getresponse()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            self._connection.close()
            raise Inaccessible(f"the broker has said nothing for {_PATIENCE:g} seconds; see its log") from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise _Broken(f"the connection to the broker broke ({error!r}): the answer is not complete") from error


class _StandIn:
    """The same API in this process, over the store itself: all that is asked is answered at once."""

    def __init__(self, api: RetainerAPI, store: str, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._interrupted = False

    def call(self, method: str, path: str, arguments: Arguments = _NONE, body: bytes = b"") -> Any:
        with self._uninterrupted():
            answer: Answer = self._now(self._api.answer(Call(method, PREFIX + path, arguments, body)))
        return _content(answer.status, answer.body)

    def pieces(
        self, path: str, arguments: Arguments = _NONE, method: str = "GET", body: bytes = b""
    ) -> Iterator[bytes]:
        answer: Answer = self._now(self._api.answer(Call(method, PREFIX + path, arguments, body)))
        if answer.more is None:
            _content(answer.status, answer.body)
            return
        while True:
            with self._uninterrupted():
                piece = self._now(answer.more())
            if not piece:
                return
            yield piece

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Let Ctrl-C wait for the next call: each is bounded, and none is torn or left untold."""
        if self._interrupted:
            raise KeyboardInterrupt

        def interrupt(_number: int, _frame: object) -> None:
            self._interrupted = True

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _now(self, deferred: Deferred[Any]) -> Any:
        results: list[Any] = []
        deferred.addBoth(results.append)
        while not results and self._is_due():
            self._clock.advance(0)
        if not results:
            raise Inaccessible(f"{self._store}: cannot be reached any more")
        if isinstance(results[0], Failure):
            raise Inaccessible(results[0].getErrorMessage())
        return results[0]

    def _is_due(self) -> bool:
        """Tell whether something waits for the end of the turn, as the writer does to gather a batch."""
        return any(call.getTime() <= self._clock.seconds() for call in self._clock.getDelayedCalls())


@contextmanager
def standing_in(config: Config) -> Iterator[Access]:
    """Open the store in this process, where no broker may have it open. Raises StoreUnusable."""
    database = database_at(config.storage.url, Durability.FULL, _TOOLS, 1.0)
    database.check_present()
    if not database.remote:
        with database.explained(), database.exclusive().begin():
            pass  # no broker has it open, from whatever data directory
    clock = Clock()
    durable = DurableStore(
        config.storage.url, Durability.FULL, 0, 0, _TOOLS, clock, _milliseconds, None,
        SynchronousBridge(gathers=True), SynchronousBridge, upgrade_command=config.upgrade_command,
    )  # fmt: skip
    durable.open()
    try:
        retainer = _recorded(config.retainer, durable)
        store = store_of(retainer, durable)
        retained = RetainedMessages(store, clock, _milliseconds, limits_of(retainer), flow_of(retainer))
        limits = HistoryLimits(**asdict(retainer.history))
        history = RetainedHistory(durable, store.flushed, clock, _milliseconds, limits, keeping=False)
        where = shown(config.storage.url)
        api = RetainerAPI(
            Administration(retained, store, _milliseconds, lambda: succeed(None)),
            retained,
            history,
            Restorer(history, retained, retained.retain, _milliseconds),
            Settings(config.retainer, None),
            where,
            partial(soundness, durable),
            Merger(retained, store, _milliseconds, lambda: succeed(None), _ROWS),
        )
        yield _StandIn(api, where, clock)
    finally:
        failures: list[Failure] = []
        durable.close().addErrback(failures.append)
    if failures:
        raise StoreUnusable(failures[0].getErrorMessage())


def _recorded(retainer: RetainerConfig, durable: DurableStore) -> RetainerConfig:
    """Return the configuration with the history on where the database has one that goes on, whatever the file says.

    A change that is not recorded would be a hole in it.
    """
    assert durable.parts is not None
    database = durable.parts.database
    with database.explained():
        connection = database.connect_reader()
        try:
            recorded = is_recorded(connection.cursor())
        finally:
            connection.close()
    return evolve(retainer, history=evolve(retainer.history, enable=True)) if recorded else retainer


def _content(status: int, body: bytes) -> Any:
    """Return what an answer says. Raises :class:`Inaccessible` for a refusal."""
    try:
        content = json.loads(body) if body else None
    except ValueError as error:
        raise Inaccessible(f"the answer (status {status}) is not JSON: {body[:60]!r}") from error
    if status >= http.client.BAD_REQUEST:
        raise Inaccessible(content["message"] if isinstance(content, dict) and "message" in content else f"{status}")
    return content


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000
