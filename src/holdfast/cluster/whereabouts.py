"""Where the stored Sessions and the Wills of clients are. All clients of a turn are looked up in one read.

How it works. ``sessions.owner`` tells the node of a Session, ``wills.node`` that of a Will. A client without a Session
gets one by a row: the partial unique index of ``sessions`` lets only one node write it, and the other one looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.cluster.adopting import NotNow
from holdfast.cluster.crossing import Rows
from holdfast.cluster.messages import Connected, Release, Released
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.postgres_values import SmallIntegers, Texts
from holdfast.storage.store import DurableStore

_OWNERS = (
    "SELECT client_id, id, owner FROM sessions WHERE client_id = ANY(CAST(? AS text[])) "
    "AND (expires_at IS NULL OR expires_at <> 0)"
)
_WILLS = (
    "SELECT client_id, node FROM wills WHERE node = ANY(CAST(? AS smallint[])) AND client_id = ANY(CAST(? AS text[]))"
)
_CLAIM = (
    f"INSERT INTO sessions ({layouts.sessions.names}) VALUES (?, ?, ?, ?, ?, NULL, NULL, ?) "  # noqa: S608
    "ON CONFLICT DO NOTHING RETURNING id"
)


class Neighbours(Protocol):
    """The other nodes, as the Sessions of this one see them."""

    rows: Rows

    def tell_node(self, node: int, message: Release | Released | Connected) -> None:
        """Send a message to a node."""

    def ask_for_hints(self) -> None:
        """Ask all nodes for the numbers of their last rows."""

    def lives(self, node: int) -> bool:
        """Tell whether nobody has taken over from a node, so that it may answer."""

    def living(self) -> list[int]:
        """Return the other nodes that live."""

    def dead(self) -> list[int]:
        """Return the nodes that are dead: others have taken over from them."""


@frozen
class Home:
    """Where the Session of a client is, and the nodes that have a Will of it."""

    identifier: int | None = None
    owner: int | None = None
    wills: tuple[int, ...] = ()


class Whereabouts:
    """Looks clients up, and writes the rows of their new Sessions."""

    _log = Logger()

    def __init__(self, durable: DurableStore, neighbours: Neighbours, clock: IReactorTime) -> None:
        self._durable = durable
        self._neighbours = neighbours
        self._clock = clock
        self._asked: dict[str, Deferred[Home]] = {}
        self._claims: list[tuple[tuple[Any, ...], Deferred[bool]]] = []

    def look_up(self, client_id: str) -> Deferred[Home]:
        """Find the owner of the stored Session of a client, and the nodes with a Will of it.

        One question about a client at a time. Fails with :class:`NotNow` or StorageFailure.
        """
        if not self._asked:
            self._clock.callLater(0, self._look_all_up)
        answer = self._asked[client_id] = Deferred()
        return answer

    def _look_all_up(self) -> None:
        asked, self._asked = self._asked, {}
        parts = self._durable.parts
        if parts is None:
            for answer in asked.values():
                answer.errback(NotNow())
            return
        nodes = [self._durable.node, *self._neighbours.living(), *self._neighbours.dead()]
        reading = parts.readers.read(partial(_read_homes, list(asked), nodes))

        def found(homes: dict[str, Home]) -> None:
            for client_id, answer in asked.items():
                answer.callback(homes.get(client_id, Home()))

        self._settle(reading, found, asked.values)

    def claim(self, row: tuple[Any, ...]) -> Deferred[bool]:
        """Write the row of a new Session: its id, client, user, listener, expiry interval and owner.

        Fires with False if another node was first. Fails with :class:`NotNow` or StorageFailure.
        """
        if not self._claims:
            self._clock.callLater(0, self._claim_all)
        answer: Deferred[bool] = Deferred()
        self._claims.append((row, answer))
        return answer

    def _claim_all(self) -> None:
        claims, self._claims = self._claims, []
        parts = self._durable.parts
        if parts is None:
            for _, answer in claims:
                answer.errback(NotNow())
            return
        writing = parts.writer.run(partial(_write_claims, [row for row, _ in claims]))

        def written(identifiers: set[int]) -> None:
            for row, answer in claims:
                answer.callback(row[0] in identifiers)

        self._settle(writing, written, lambda: [answer for _, answer in claims])

    def _settle(self, work: Deferred[Any], succeeded: Callable[[Any], None], answers: Callable[[], Any]) -> None:
        def failed(failure: Any) -> None:
            for answer in answers():
                answer.errback(failure)

        work.addCallbacks(succeeded, failed)
        work.addErrback(lambda failure: self._log.failure("a search for Sessions has failed", failure))


def _read_homes(client_ids: Sequence[str], nodes: Sequence[int], connection: Connection) -> dict[str, Home]:
    cursor = connection.cursor()
    cursor.execute(_OWNERS, (Texts(client_ids),))
    homes = {client_id: Home(identifier, owner) for client_id, identifier, owner in cursor.fetchall()}
    cursor.execute(_WILLS, (SmallIntegers(nodes), Texts(client_ids)))
    for client_id, node in cursor.fetchall():
        home = homes.get(client_id, Home())
        homes[client_id] = Home(home.identifier, home.owner, (*home.wills, node))
    return homes


def _write_claims(rows: Sequence[tuple[Any, ...]], connection: Connection) -> set[int]:
    cursor = connection.cursor()
    written: set[int] = set()
    for row in rows:
        cursor.execute(_CLAIM, row)
        written.update(identifier for (identifier,) in cursor.fetchall())
    return written
