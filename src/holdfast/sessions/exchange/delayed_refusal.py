"""The refusal of a failed login that waits for its time (:mod:`holdfast.auth.failures`)."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.auth.failures.waiting import WaitingRefusals
from holdfast.sessions.connection.actions import NO_ACTIONS
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.wire.packets import Will


class _NoMessages:
    """The queue of a Client without a Session."""

    bytes = 0

    def __len__(self) -> int:
        return 0


def _nothing() -> None:
    """Do nothing when there is room for messages: there are none."""


class DelayedRefusal:
    """A Client that waits for its refusal. ``refuse`` sends it, and ends the connection.

    It takes the place of an admitted Client at its connection, and so hears of the connection's end.
    """

    actions = NO_ACTIONS
    will: Will | None = None
    queue = _NoMessages()
    keep_alive = 0
    clean_start = True

    def __init__(self, link: IClientLink, waiting: WaitingRefusals, refuse: Callable[[], None]) -> None:
        self._link = link
        self._group = link.peer.group
        self._waiting = waiting
        self._refuse = refuse

    def begin(self, seconds: float) -> None:
        """Wait, or refuse at once if too many wait already. Packets of the Client wait meanwhile."""
        if not self._waiting.enter(self._group, self.answer):
            self._refuse()
            return
        self._link.attach(self, _nothing)
        self._link.hold()
        self._link.answer_after(seconds, self.answer)

    def answer(self) -> None:
        """Refuse now."""
        with self._link.guard:
            self._refuse()

    def end(self, _will: Will | None) -> None:
        """Wait no longer: the connection is over."""
        self._waiting.leave(self._group, self.answer)
