"""Tells the authorizer that the groups of users have changed.

What a user loses counts at once. Users who are added are told together, a second later: each new epoch of the
authorizer lets it ask about all subscriptions again.
"""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.accounts.users import Changes
from holdfast.authorization.authorizer import Authorizer
from holdfast.authorization.present import PresentAuthorizer

#: seconds for which added users are collected
COLLECTING = 1.0


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
            self._later = self._clock.callLater(COLLECTING, self._renew)

    def stop(self) -> None:
        """Renew nothing later."""
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _renew(self) -> None:
        self._later = None
        if isinstance(self._present.authorizer, Authorizer):
            self._present.authorizer.renew()
