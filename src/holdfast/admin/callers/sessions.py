"""Sessions of the dashboard, in memory: a restart of the broker ends them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import define, field

from holdfast.admin.callers.caller import Caller
from holdfast.admin.callers.tokens import digest_of, new_token

#: seconds after which a session ends if it is not used, and after which it ends anyway
IDLE, LONGEST = 8 * 3600.0, 7 * 86_400.0
#: the most sessions; the one that was not used for the longest time ends
MOST = 200


@define(eq=False)
class DashboardSession:
    """A session: its user, and the token that every change needs beside the cookie.

    ``user`` is the name of a user in the database, None after a login by a link. Times are those of any clock.
    """

    caller: Caller
    user: str | None
    began: float
    used: float
    csrf: str = field(factory=new_token)


class DashboardSessions:
    """The sessions by the hashes of their cookies. ``seconds`` is any clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._sessions: dict[bytes, DashboardSession] = {}

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def begin(self, caller: Caller, user: str | None) -> tuple[str, DashboardSession]:
        """Begin a session; return its cookie and the session."""
        self._forget()
        while len(self._sessions) >= MOST:
            del self._sessions[min(self._sessions, key=lambda digest: self._sessions[digest].used)]
        cookie, now = new_token(), self._seconds()
        session = DashboardSession(caller=caller, user=user, began=now, used=now)
        self._sessions[digest_of(cookie)] = session
        return cookie, session

    def find(self, cookie: str) -> DashboardSession | None:
        """Return the session of a cookie, which is used by that; None if there is none any more."""
        digest, now = digest_of(cookie), self._seconds()
        session = self._sessions.get(digest)
        if session is not None and self._is_over(session, now):
            del self._sessions[digest]
            return None
        if session is not None:
            session.used = now
        return session

    def lasts(self, cookie: str) -> bool:
        """Tell whether the session of a cookie goes on, without using it."""
        session = self._sessions.get(digest_of(cookie))
        return session is not None and not self._is_over(session, self._seconds())

    def end(self, cookie: str) -> None:
        """End the session of a cookie."""
        self._sessions.pop(digest_of(cookie), None)

    def end_of(self, users: Collection[str]) -> None:
        """End all sessions of these users."""
        self._sessions = {digest: each for digest, each in self._sessions.items() if each.user not in users}

    def left(self, session: DashboardSession) -> float:
        """Return the seconds after which a session ends if it is not used."""
        return min(session.used + IDLE, session.began + LONGEST) - self._seconds()

    def _forget(self) -> None:
        now = self._seconds()
        self._sessions = {digest: each for digest, each in self._sessions.items() if not self._is_over(each, now)}

    def _is_over(self, session: DashboardSession, now: float) -> bool:
        return now >= min(session.used + IDLE, session.began + LONGEST)
