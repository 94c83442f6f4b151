"""Joins the draining of a member's clients with its membership: the table tells that it drains, and where to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.interfaces import IReactorTime

from holdfast.core.tickets import StorageFailure
from holdfast.identity.accounts import read
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.draining import Draining
from holdfast.storage.driver import Connection
from holdfast.storage.store import DurableStore

if TYPE_CHECKING:
    from holdfast.cluster.membership import Membership

#: seconds between two looks at the addresses of the other members
LOOKS = 2.0


class MemberDraining:
    """Lets this member drain while the table of members says so."""

    def __init__(self, membership: Membership, durable: DurableStore, draining: Draining, clock: IReactorTime) -> None:
        self._durable = durable
        self._draining = draining
        self._job = PeriodicJob(
            self._look, name="looking for members that take the clients", interval=LOOKS, clock=clock,
            foreseen=(StorageFailure,),
        )  # fmt: skip
        membership.on_draining = self.note

    def note(self, drains: bool) -> None:
        """Begin or end to drain, as the answer to each renewal of the lease tells."""
        if drains and not self._draining.is_on:
            self._draining.begin()
            self._job.start()
        elif not drains and self._draining.is_on:
            self._job.stop()
            self._draining.end()

    @as_deferred
    async def _look(self) -> None:
        self._draining.send_to(await read(self._durable, self._addresses))

    def _addresses(self, connection: Connection) -> list[str]:
        """Return the addresses of the other members that serve clients."""
        from holdfast.cluster.members import read_members

        return [
            member.address
            for member in read_members(connection.cursor())
            if member.node != self._durable.node and member.state == "member" and member.is_alive and member.address
        ]
