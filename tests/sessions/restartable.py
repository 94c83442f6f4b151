"""A whole broker in memory around a real database, which can be killed and started again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from holdfast.changes.telemetry import Telemetry
from holdfast.retained.leases import DurableLeaseRows, LeaseRows
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.usage import GUESTS_ONLY, USERS
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.state import ISessionStates
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore, OpenStore
from tests.doubles import START, MemoryBroker


class RestartableBroker(MemoryBroker):
    """Commits at the end of each turn or, when ``manual``, when :meth:`commit` is called.

    The database is an SQLite file, or the one with this URL. Several nodes may have the same one.
    """

    def __init__(
        self, place: Path | str, manual: bool = False, start: float = START, node: int = 1, **options: Any
    ) -> None:
        self._place = place
        self._node = node
        self._options = options
        self.executor = SynchronousExecutor(manual, waits_for_turn=True)
        super().__init__(start=start, **options)
        self.registry.restore(lambda _: self.limits)
        self.settle()

    def make_store(self) -> IRetainedStore:
        """Open the database's store."""
        url = self._place if isinstance(self._place, str) else f"sqlite:///{self._place}"
        self.durable = DurableStore(
            url, durability=Durability.PROCESS, flush_interval=1, max_pending=0, node=self._node,
            reactor=self.clock, now=self.now, executor=self.executor, reading_executor=SynchronousExecutor,
        )  # fmt: skip
        limits = self._options.get("retainer") or RetainerLimits()
        topic_filters = [topic_filter for topic_filter, _ in limits.topic_quotas]
        return SQLRetainedStore(
            self.durable,
            counted_filters=topic_filters,
            counted_clients=limits.client_quota is not None,
            counted_policies=limits.policies,
            counted_payers=None if limits.payers is None else USERS if limits.payers.names_proven else GUESTS_ONLY,
        )

    def open_store(self) -> None:
        """Open the database."""
        self.durable.open()

    def make_leases(self) -> LeaseRows:
        """Keep leases in the same file."""
        return DurableLeaseRows(self.durable)

    def make_telemetry(self) -> Telemetry:
        """Record messages without RETAIN in the same file."""
        self.telemetry = Telemetry(self.durable, clock=self.clock, now=self.now)
        return self.telemetry

    def make_states(self) -> ISessionStates:
        """Keep Session State in the same file."""
        return DurableSessionStates(self.durable, self.clock)

    @property
    def parts(self) -> OpenStore:
        """The open store."""
        assert self.durable.parts is not None
        return self.durable.parts

    def commit(self) -> None:
        """Commit all pending changes, and let the broker act on it."""
        self.settle()
        while self.executor.waiting:
            self.executor.step()
            self.settle()

    def rows(self, table: str) -> int:
        """Count the committed rows of a table of an SQLite file."""
        assert isinstance(self._place, Path)
        connection = sqlite3.connect(self._place)
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        connection.close()
        return int(count)

    def kill(self) -> None:
        """Kill the process, and lose the uncommitted changes."""
        self.executor.waiting.clear()
        if self.parts.writer._committer._connection is not None:
            self.parts.writer._committer._connection.close()
        self.parts.readers.close()

    def restart(self, after: float = 0, manual: bool = False) -> RestartableBroker:
        """Kill the process, lose the uncommitted changes, and start another one."""
        self.kill()
        return RestartableBroker(self._place, manual, self.clock.seconds() + after, self._node, **self._options)

    def stop(self, after: float = 0, manual: bool = False) -> RestartableBroker:
        """Stop the process as SIGTERM does, and start another one."""
        self.registry.shut_down()
        self.commit()
        self.retained.stopService()
        self.telemetry.stopService()
        closed = self.durable.close()
        self.commit()
        assert closed.called
        return RestartableBroker(self._place, manual, self.clock.seconds() + after, self._node, **self._options)
