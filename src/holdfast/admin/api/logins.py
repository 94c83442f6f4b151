"""Logging in and out. A login answers with a cookie that scripts cannot read, and a token that changes need beside it.

How it works. The cookie proves who calls; a browser sends it with every request, also with those that another web page
makes. So a change needs the token, too, which only pages of this origin can read; and the browser is told to send the
cookie with requests of the same site only (SameSite=Strict).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.arguments import BOOLEAN, STRING, TIME, array, check_fields, nullable, object_of, record, request
from holdfast.admin.call import (
    Answer,
    Call,
    Caller,
    Head,
    RefusedCall,
    Scope,
    Via,
    answer,
    bad_request,
    cookie_name,
    unauthorized,
    unavailable,
)
from holdfast.admin.callers import LINK_LIFETIME, DashboardSession, DashboardSessions, Links
from holdfast.admin.routing import NOTHING, Content, Route, routes_of
from holdfast.core.units import second_of
from holdfast.identity.addresses import Peer
from holdfast.identity.hashes import Busy
from holdfast.scheduling.waiting import as_deferred

LOGIN_PATH, LOGOUT_PATH, SESSION_PATH = "/api/v5/login", "/api/v5/logout", "/api/v5/session"
LINK_PATH = "/api/v5/dashboard/link"

_EXAMPLE = '{"token": "..."} or {"username": "alice", "password": "..."}'
_SESSION = record(
    {
        "name": STRING,
        "scopes": array(STRING),
        "csrf_token": nullable(STRING),
        "expires_at": nullable(TIME),
        "password_login": BOOLEAN,
    }
)


class ILoginFailures(Protocol):
    """Counts failed logins."""

    def wrong(self, peer: Peer, name: str, message: str) -> RefusedCall:
        """Count a failed login; return its refusal."""

    def right(self, peer: Peer, name: str) -> None:
        """Take back the failures of a name that is proven now."""


#: Verifies a password. Fires with whether it is right and its user may log in. Raises Busy.
VerifyUser = Callable[[str, bytes], Deferred[bool]]


_CREDENTIALS = {
    "oneOf": [
        request({"token": STRING}, required=("token",)),
        request({"username": STRING, "password": STRING}, required=("username", "password")),
    ]
}


class LoginAPI:
    """Logs people in and out.

    ``verify`` returns the function that verifies passwords, None if no user may log in. ``url`` returns the address of
    the dashboard, None if it is off. ``now`` returns milliseconds since the epoch.
    """

    def __init__(
        self,
        sessions: DashboardSessions,
        links: Links,
        failures: ILoginFailures,
        *,
        verify: Callable[[], VerifyUser | None],
        url: Callable[[], str | None],
        now: Callable[[], int],
    ) -> None:
        self._sessions = sessions
        self._links = links
        self._failures = failures
        self._verify = verify
        self._url = url
        self._now = now
        self.routes = routes_of(self)

    def new_link(self) -> str | None:
        """Return a link that logs in once; None if the dashboard is off."""
        url = self._url()
        # Behind the #, the token is sent to no server and stands in no log.
        return None if url is None else f"{url}#token={self._links.new()}"

    @Route(
        method="POST",
        path=LINK_PATH,
        scope=Scope.ADMIN,
        summary="Create a link that logs in once",
        control_only=True,
        answers={200: Content(record({"url": STRING, "expires_at": TIME}), "the link")},
    )
    def link(self, _call: Call) -> Deferred[Answer]:
        """Answer with a link that logs in once."""
        url = self.new_link()
        if url is None:
            raise unavailable("the dashboard is off: set admin.endpoint, and see the broker's log")
        return succeed(answer({"url": url, "expires_at": second_of(self._now() + int(1000 * LINK_LIFETIME))}))

    @Route(
        method="POST",
        path=LOGIN_PATH,
        scope=Scope.OPEN,
        summary="Log in with the token of a link, or with a user's password; the answer sets the cookie",
        body=Content(_CREDENTIALS, "who logs in"),
        answers={200: Content(_SESSION, "the session")},
    )
    @as_deferred
    async def log_in(self, call: Call) -> Answer:
        """Begin a session."""
        fields, head = object_of(call, _EXAMPLE), _head_of(call)
        if "token" in fields:
            check_fields(fields, ("token",))
            if not isinstance(fields["token"], str) or not self._links.use(fields["token"]):
                message = "this link was used already or is over; holdfast dashboard gives a new one"
                raise self._failures.wrong(head.peer, "link", message)
            return self._begun(head, Caller("link", None, via=Via.SESSION, scopes=_ALL), None)
        check_fields(fields, ("username", "password"))
        username, password = fields.get("username"), fields.get("password")
        if not (isinstance(username, str) and isinstance(password, str) and username and password):
            raise bad_request(f"the body is a JSON object such as {_EXAMPLE}", "username", "a string")
        verify = self._verify()
        if verify is None:
            raise RefusedCall(
                http.FORBIDDEN, "FORBIDDEN",
                "no user may log in by a password: admin.users_group is empty; holdfast dashboard gives a link",
            )  # fmt: skip
        try:
            right = await verify(username, password.encode("utf-8", "surrogatepass"))
        except Busy as busy:
            raise unavailable(f"{busy}; try it again later") from None
        if not right:
            message = "the password is wrong, or this user may not log in here"
            raise self._failures.wrong(head.peer, username, message)
        self._failures.right(head.peer, username)
        caller = Caller(f"user {username} via dashboard", None, via=Via.SESSION, scopes=_ALL)
        return self._begun(head, caller, username)

    @Route(
        method="POST",
        path=LOGOUT_PATH,
        scope=Scope.OPEN,
        summary="Log out: end the session of the cookie",
        answers={204: NOTHING},
    )
    def log_out(self, call: Call) -> Deferred[Answer]:
        """End the session."""
        head = _head_of(call)
        if head.cookie is not None:
            self._sessions.end(head.cookie)
        return succeed(Answer(http.NO_CONTENT, headers=(_cookie(head, "", 0),)))

    @Route(
        method="GET",
        path=SESSION_PATH,
        scope=Scope.OPEN,
        summary="Show the caller, its scopes, and the token that a caller with a cookie needs for changes",
        answers={200: Content(_SESSION, "the caller")},
    )
    def session(self, call: Call) -> Deferred[Answer]:
        """Describe the caller."""
        if call.caller.via is Via.NOTHING:
            more = {"password_login": self._verify() is not None}
            raise unauthorized("nobody is logged in here; holdfast dashboard prints a link", more=more)
        cookie = None if call.head is None else call.head.cookie
        session = self._sessions.find(cookie) if cookie is not None and call.caller.via is Via.SESSION else None
        return succeed(answer(self._shown(call.caller, session)))

    def _begun(self, head: Head, caller: Caller, user: str | None) -> Answer:
        if head.cookie is not None:
            self._sessions.end(head.cookie)
        cookie, session = self._sessions.begin(caller, user)
        shown = self._shown(caller, session)
        return answer(shown, headers=(_cookie(head, cookie, None),), note={"operator": caller.name})

    def _shown(self, caller: Caller, session: DashboardSession | None) -> dict[str, Any]:
        ends = None if session is None else second_of(self._now() + int(1000 * self._sessions.left(session)))
        return {
            "name": caller.name,
            "scopes": sorted(scope.value for scope in caller.scopes),
            "csrf_token": None if session is None else session.csrf,
            "expires_at": ends,
            "password_login": self._verify() is not None,
        }


_ALL = frozenset({Scope.ADMIN})


def _head_of(call: Call) -> Head:
    if call.head is None:
        raise bad_request("this call is for browsers: make it at the listener of the API, not at the control socket")
    return call.head


def _cookie(head: Head, value: str, age: int | None) -> tuple[str, str]:
    """Return the header that sets the cookie; without an age it lasts as long as the browser runs."""
    # A proxy may have TLS where this connection has none: then the origin of the page says so.
    secure = head.secure or (head.origin or "").startswith("https:")
    parts = [f"{cookie_name(head.host, secure=secure)}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    if secure:
        parts.append("Secure")
    if age is not None:
        parts.append(f"Max-Age={age}")
    return "Set-Cookie", "; ".join(parts)
