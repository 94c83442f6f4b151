"""Who calls, and by what right: local users, links, and sessions of the dashboard."""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import struct
from collections.abc import Callable, Collection
from functools import lru_cache
from hashlib import sha256
from typing import Any

from attrs import define, field

from holdfast.admin.call import Caller, Scope, Via

# Random tokens, kept as hashes only: a reader of the broker's memory learns none.


_BYTES = 32


def new_token() -> str:
    """Return 256 random bits as text for URLs and cookies."""
    return secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """Return the hash under which a token is kept."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


# Operators at the control socket: local users. The kernel names them, and they have all permissions.


#: pid, uid and gid of the process at the other end of a UNIX domain socket (Linux)
_CREDENTIALS = struct.Struct("3i")
_PEER_CREDENTIALS: int | None = getattr(socket, "SO_PEERCRED", None)
_EVERYTHING = frozenset({Scope.ADMIN})

#: the user of a control socket whom the system cannot name: the mode of the socket has let this user in
UNKNOWN = Caller(scopes=_EVERYTHING, via=Via.CONTROL, on_loopback=True)


def operator_at(transport: Any) -> Caller:
    """Return the user whose process is at the other end of this transport, as it was when it connected."""
    connection = getattr(transport, "socket", None)
    if connection is None or connection.family != socket.AF_UNIX or _PEER_CREDENTIALS is None:
        return UNKNOWN
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _PEER_CREDENTIALS, _CREDENTIALS.size)
    except OSError:  # a kernel without the option
        return UNKNOWN
    return operator_with(_CREDENTIALS.unpack(found)[1])


def this_operator() -> Caller:
    """Return the user of this process."""
    return operator_with(os.getuid())


@lru_cache(maxsize=64)  # a directory service may take its time
def operator_with(uid: int) -> Caller:
    """Return the user with this number."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    return Caller(name, uid, _EVERYTHING, Via.CONTROL, on_loopback=True)


# Links that log an operator in at the dashboard: each has a token that counts once, and for a quarter of an hour.


#: seconds for which a link can be used
LINK_LIFETIME = 900.0
#: the most links that can be used at one time
MOST_LINKS = 100


class Links:
    """The tokens of links that are not used yet. ``seconds`` is any clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._ends: dict[bytes, float] = {}

    def new(self) -> str:
        """Return the token of a new link. The oldest one ends if there are too many."""
        self._forget()
        while len(self._ends) >= MOST_LINKS:
            del self._ends[next(iter(self._ends))]
        token = new_token()
        self._ends[digest_of(token)] = self._seconds() + LINK_LIFETIME
        return token

    def use(self, token: str) -> bool:
        """Tell whether a token counts. It does not count again."""
        self._forget()
        return self._ends.pop(digest_of(token), None) is not None

    def _forget(self) -> None:
        now = self._seconds()
        for digest in [digest for digest, end in self._ends.items() if end <= now]:
            del self._ends[digest]


# Sessions of the dashboard, in memory: a restart of the broker ends them.


#: seconds after which a session ends if it is not used, and after which it ends anyway
IDLE_SESSION, LONGEST_SESSION = 8 * 3600.0, 7 * 86_400.0
#: the most sessions; the one that was not used for the longest time ends
MOST_SESSIONS = 200


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
        while len(self._sessions) >= MOST_SESSIONS:
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
        return min(session.used + IDLE_SESSION, session.began + LONGEST_SESSION) - self._seconds()

    def _forget(self) -> None:
        now = self._seconds()
        self._sessions = {digest: each for digest, each in self._sessions.items() if not self._is_over(each, now)}

    def _is_over(self, session: DashboardSession, now: float) -> bool:
        return now >= min(session.used + IDLE_SESSION, session.began + LONGEST_SESSION)
