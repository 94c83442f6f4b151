"""Follows what other nodes change: it compares the versions in a shared database with those in memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime

from holdfast.accounts.keys import Keys
from holdfast.accounts.refusals import BadValue
from holdfast.accounts.renewal import Renewal
from holdfast.accounts.rules import Rules
from holdfast.accounts.store_access import read
from holdfast.accounts.users import Users
from holdfast.accounts.versions import Versions, read_versions
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.store import DurableStore
from holdfast.tickets import StorageFailure

#: seconds between two looks
INTERVAL = 2.0


class Following(Service):
    """Looks every two seconds, if other nodes may change users, rules or API keys.

    Users and rules that cannot be read change nothing: those from before count until they can be read.
    """

    def __init__(
        self,
        store: DurableStore,
        users: Users,
        rules: Rules,
        clock: IReactorTime,
        renewal: Renewal | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._store = store
        self._users = users
        self._rules = rules
        self._renewal = renewal
        self._keys = keys
        self._job = PeriodicJob(
            self._look, name="the look for changed users and rules in the database", interval=INTERVAL, clock=clock,
            foreseen=(StorageFailure, StoreUnusable, BadValue),
        )  # fmt: skip

    def startService(self) -> None:
        """Begin to look."""
        Service.startService(self)
        if self._store.shared:
            self._job.start(INTERVAL)

    def stopService(self) -> None:
        """Look no more."""
        Service.stopService(self)
        self._job.stop()
        if self._renewal is not None:
            self._renewal.stop()

    @inlineCallbacks
    def _look(self) -> Generator[Deferred[Any], Any, None]:
        found: Versions = yield read(self._store, read_versions)
        if found.users > self._users.version:
            yield self._users.refresh()
        if found.rules > self._rules.version:
            yield self._rules.refresh()
        if self._keys is not None:
            yield self._keys.refresh()  # few rows: they need no version
