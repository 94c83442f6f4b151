"""Users of SCRAM who are gone from their file, or have another password there, are revoked.

An exchange reads a changed file by itself, but clients that are connected begin none. So the files are looked at every
few seconds, too. A look takes all changes that were read since the look before, also those that an exchange has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime

from holdfast.auth.interfaces import Principal
from holdfast.auth.scram.users_file import UsersFile
from holdfast.scheduling.periodic import PeriodicJob

#: seconds between two looks at the files
LOOK_INTERVAL = 2.0


class Revocations(Service):
    """Looks at files of users, by the names of their methods. ``revoke`` takes what tells the revoked Principals."""

    def __init__(
        self,
        files: Mapping[str, UsersFile],
        clock: IReactorTime,
        revoke: Callable[[Callable[[Principal], bool]], object],
    ) -> None:
        self._files = files
        self._revoke = revoke
        self._job = PeriodicJob(self._look, name="the look at the users of SCRAM", interval=LOOK_INTERVAL, clock=clock)

    def startService(self) -> None:
        """Begin to look."""
        Service.startService(self)
        self._job.start(LOOK_INTERVAL)

    def stopService(self) -> None:
        """Look no more."""
        Service.stopService(self)
        self._job.stop()

    def _look(self) -> None:
        for name, file in self._files.items():
            file.users()
            gone = file.take_gone()
            if gone:
                self._revoke(_users_of(name, gone))


def _users_of(method: str, users: frozenset[str]) -> Callable[[Principal], bool]:
    return lambda principal: principal.method == method and principal.username in users
