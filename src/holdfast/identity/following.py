"""Follows what other nodes change: it compares the versions in a shared database with those in memory."""

from __future__ import annotations

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.core.tickets import StorageFailure
from holdfast.identity.accounts import BadValue, Versions, read, read_versions
from holdfast.identity.api_keys import Keys
from holdfast.identity.authorizer import Authorizer, PresentAuthorizer
from holdfast.identity.database_rules import Rules
from holdfast.identity.shared_bans import SharedBans
from holdfast.identity.users import Changes, Users
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.location import StoreUnusable
from holdfast.storage.store import DurableStore

#: seconds between two looks; between those of a member of a cluster: what one changes counts at all within a second
LOOK_INTERVAL, MEMBERS_INTERVAL = 2.0, 0.5


class Following(Service):
    """Looks at intervals, if other nodes may change users, rules or API keys; a member also at the ``bans`` of all.

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
        bans: SharedBans | None = None,
    ) -> None:
        self._bans = bans
        self._store = store
        self._users = users
        self._rules = rules
        self._renewal = renewal
        self._keys = keys
        self._job = PeriodicJob(
            self._look, name="the look for changed users and rules in the database",
            interval=LOOK_INTERVAL if bans is None else MEMBERS_INTERVAL, clock=clock,
            foreseen=(StorageFailure, StoreUnusable, BadValue),
        )  # fmt: skip

    def startService(self) -> None:
        """Begin to look."""
        Service.startService(self)
        if self._store.shared:
            self._job.start(self._job.interval)

    def stopService(self) -> None:
        """Look no more."""
        Service.stopService(self)
        self._job.stop()
        if self._renewal is not None:
            self._renewal.stop()

    @as_deferred
    async def _look(self) -> None:
        found: Versions = await read(self._store, read_versions)
        if found.users > self._users.version:
            await self._users.refresh()
        if found.rules > self._rules.version:
            await self._rules.refresh()
        if self._keys is not None:
            await self._keys.refresh()  # few rows: they need no version
        if self._bans is not None:
            await self._bans.refresh()


# Tells the authorizer that the groups of users have changed.
#
# What a user loses counts at once. Users who are added are told together, a second later: each new epoch of the
# authorizer lets it ask about all subscriptions again.


#: seconds for which added users are collected
COLLECTING_SECONDS = 1.0


class Renewal:
    """Renews the answers of the present authorizer after changes of users."""

    def __init__(self, present: PresentAuthorizer, clock: IReactorTime) -> None:
        self._present = present
        self._clock = clock
        self._later: IDelayedCall | None = None

    def changed(self, changes: Changes) -> None:
        """Take a change of users."""
        if changes.regrouped & changes.revoked:
            self.stop()
            self._renew()
        elif changes.regrouped and self._later is None:
            self._later = self._clock.callLater(COLLECTING_SECONDS, self._renew)

    def stop(self) -> None:
        """Renew nothing later."""
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _renew(self) -> None:
        self._later = None
        if isinstance(self._present.authorizer, Authorizer):
            self._present.authorizer.renew()
