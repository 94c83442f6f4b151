"""Calls of the API and their answers, independent of a transport: the same over a socket and within a process."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from ipaddress import IPv6Address
from typing import Any

from attrs import evolve, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.config.toml import ConfigError
from holdfast.core.terminal import safe_json
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.identity.addresses import Peer, peer_of
from holdfast.storage.location import StoreUnusable

# A caller of the API, and the scopes of its permissions.


class Scope(Enum):
    """The permission that a call needs. :attr:`ADMIN` includes all other scopes; no other scope includes one."""

    OPEN = "open"
    READ = "read"
    PUBLISH = "publish"
    RETAINED_WRITE = "retained:write"
    ADMIN = "admin"


class Via(Enum):
    """The proof of a caller's identity."""

    NOTHING = "nothing"
    CONTROL = "the control socket"
    KEY = "an API key"
    SESSION = "a session of the dashboard"


@frozen
class Caller:
    """The caller of a call. ``name`` is shown in the audit log; a local user has the number ``uid``.

    ``on_loopback`` tells whether the call comes from this machine. That alone gives few rights: every user and every
    browser of the machine can make such a call.
    """

    name: str = ""
    uid: int | None = None
    scopes: frozenset[Scope] = frozenset()
    via: Via = Via.NOTHING
    on_loopback: bool = False

    def may(self, scope: Scope) -> bool:
        """Tell whether this caller may make calls that need a scope."""
        return scope is Scope.OPEN or scope in self.scopes or Scope.ADMIN in self.scopes

    def __str__(self) -> str:
        return self.name or "an unknown operator"


#: who has proven nothing, and may make open calls only
ANYONE = Caller()

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv; charset=utf-8"

#: seconds until a call is late, and the most that its caller may name
CALL_PATIENCE, MOST_PATIENCE = 10, 60


#: stands for JSON that is not read yet
UNREAD = object()


def _nothing() -> None:
    """Note nothing."""


@frozen
class Call:
    """A call: its method, its path (still percent-encoded), its arguments, and its body.

    The arguments are those of the query string; for a handler, also the values in the path. ``accept`` is the header of
    this name; ``head`` has what else the request says, if it came over HTTP. ``is_current`` tells whether the caller
    may still make calls: a long answer ends with the caller's key or session. ``parsed`` is the JSON in a long body,
    which a thread has read. A handler that verifies the caller's credentials itself calls ``prove`` when they are
    right: then the connection does not give way to others while the answer goes on.
    """

    method: str
    path: str
    arguments: Mapping[str, str]
    body: bytes = b""
    caller: Caller = ANYONE
    accept: str = ""
    head: Head | None = None
    is_current: Callable[[], bool] = field(default=lambda: True, eq=False)
    parsed: Any = field(default=UNREAD, eq=False, repr=False)
    prove: Callable[[], None] = field(default=_nothing, eq=False, repr=False)

    @property
    def prefers_job(self) -> bool:
        """Whether the caller asks for a job in place of a late answer."""
        return self.head is not None and self.head.prefers_job

    @property
    def patience(self) -> int:
        """The seconds that the caller waits for the answer."""
        wanted = None if self.head is None else self.head.prefers_wait
        return CALL_PATIENCE if wanted is None else max(1, min(wanted, MOST_PATIENCE))


@frozen
class Answer:
    """An answer: its ``body``, or the pieces that repeated calls of ``more`` return until it returns b"".

    Over HTTP, a piece is sent as soon as it is there, and however long it takes; a Deferred is cancelled if the caller
    leaves. ``stopped`` is then called once, and also when the answer is complete.

    Over HTTP, the answer waits for ``delay`` seconds.

    ``note`` says for the audit log what the call has changed, without secrets.
    """

    status: int = http.OK
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    more: Callable[[], Deferred[bytes]] | None = None
    stopped: Callable[[], None] | None = None
    note: Mapping[str, object] = field(factory=dict)
    delay: float = 0.0


#: Answers a call. It may raise RefusedCall or another exception, or its Deferred may fail with one.
Handler = Callable[[Call], Deferred[Answer]]


def answer(
    content: Any,
    status: int = http.OK,
    headers: tuple[tuple[str, str], ...] = (),
    note: Mapping[str, object] | None = None,
    content_type: str = JSON,
) -> Answer:
    """Return an answer with JSON content."""
    body = safe_json(content).encode() + b"\n"
    return Answer(status, body, content_type, headers, note=note or {})


#: the answer to a call that succeeded and has no content
DONE = Answer(http.NO_CONTENT)


# Hosts and origins in headers: read strictly, since lenient parsers disagree about malformed ones.
#
# ``evil@localhost`` has the host ``localhost`` for a parser of URLs, and is no value of the header Host at all.


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{0,5}))?")
_MOST_PORT = 65_535
_PORTS = {"http": 80, "https": 443}


def host_and_port(text: str | None) -> tuple[str, int | None] | None:
    """Return the host in lower case, without brackets, and the port, None if it has none. None for anything else."""
    found = _HOST.fullmatch(text or "")
    if found is None:
        return None
    name, digits = found[1].lower().strip("[]"), found[2]
    port = int(digits) if digits else None
    if port is not None and not 0 < port <= _MOST_PORT:
        return None
    if found[1].startswith("["):
        try:
            IPv6Address(name)
        except ValueError:
            return None
    return name, port


def place_of(origin: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin; None if it is none, as ``null`` is."""
    scheme, found, rest = origin.partition("://")
    place = host_and_port(rest) if found and scheme in _PORTS else None
    return None if place is None else (scheme, place[0], place[1] or _PORTS[scheme])


# The name of the cookie of a dashboard's session.
#
# Browsers send the cookies of a host to all its ports. So the name has the port that the browser sees: two brokers on
# one host do not log each other's operators out. Over TLS, the name begins with ``__Host-``: then browsers take the
# cookie from this host only, and only over TLS.


_SECURE = "__Host-"


def cookie_name(host: str | None, *, secure: bool) -> str:
    """Return the name for a browser that has asked for this Host."""
    place = host_and_port(host)
    port = "" if place is None or place[1] is None else f"-{place[1]}"
    return f"{_SECURE if secure else ''}holdfast{port}"


def cookie_names(host: str | None, *, secure: bool) -> tuple[str, ...]:
    """Return the names under which a cookie counts. Without TLS, a proxy may have TLS: so both names count."""
    names = (cookie_name(host, secure=True), cookie_name(host, secure=False))
    return names[:1] if secure else names


# The head of a request: its target and its sender.


#: what proxies add to requests: the address of their client, or that they are there
_OF_PROXIES = (
    b"forwarded", b"via", b"x-forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip",
)  # fmt: skip


@frozen(kw_only=True)
class Head:
    """The parts of a head that identify the caller. A missing part is None.

    ``peer`` is the other end of the connection. It is ``proxied`` if the head has a header that proxies add.
    """

    method: str
    peer: Peer
    #: still percent-encoded, without the query string
    path: str = ""
    secure: bool = False
    #: X-Forwarded-For and X-Forwarded-Proto, which may be the client's own words
    forwarded_for: str | None = None
    forwarded_proto: str | None = None
    host: str | None = None
    #: whether the request has no Host and needs none: one of HTTP/1.0
    is_without_host: bool = False
    origin: str | None = None
    authorization: str | None = None
    cookie: str | None = None
    csrf: str | None = None
    #: Accept-Encoding and If-None-Match
    encodings: str | None = None
    etags: str | None = None
    #: Last-Event-ID: where a stream of events broke off
    last_event: str | None = None
    #: Prefer (RFC 7240)
    prefer: str | None = None

    @property
    def changes(self) -> bool:
        """Whether the call may change something."""
        return self.method not in ("GET", "HEAD", "OPTIONS")

    @property
    def prefers_job(self) -> bool:
        """Whether the caller wants a job at once rather than the result later: ``Prefer: respond-async``."""
        return "respond-async" in self._preferences

    @property
    def prefers_wait(self) -> int | None:
        """The seconds that the caller wants to wait for the answer: ``Prefer: wait=N``. None if it names none."""
        wanted = [text for each in self._preferences if (text := each.removeprefix("wait=")) != each]
        return int(wanted[0][:4]) if wanted and wanted[0].isascii() and wanted[0].isdigit() else None

    @property
    def _preferences(self) -> list[str]:
        """The preferences without their parameters, in lower case."""
        return [each.partition(";")[0].strip() for each in (self.prefer or "").lower().split(",")]


#: Returns who calls, from the transport and the head. Raises RefusedCall.
Identify = Callable[[Any, Head], Caller]
#: Tells whether a caller who was found may still make the call.
GoesOn = Callable[[Any, Head, Caller], bool]
#: Returns the head with the address of the client, which a trusted proxy tells. Raises RefusedCall.
Unwrap = Callable[[Head], Head]


def head_of(request: Any, method: bytes) -> Head:
    """Return the head of a request whose headers have arrived."""

    def header(name: bytes) -> str | None:
        values = request.requestHeaders.getRawHeaders(name)
        return values[0].decode("utf-8", "replace") if values and len(values) == 1 else None

    headers, host, secure = request.requestHeaders, header(b"host"), bool(request.isSecure())
    cookies = (request.getCookie(name.encode()) for name in cookie_names(host, secure=secure))
    cookie = next((found for found in cookies if found is not None), None)
    peer = peer_of(request.channel.transport.getPeer())
    # A client may send the header more than once; its proxy adds the last address of the last one.
    forwarded_for = b",".join(headers.getRawHeaders(b"x-forwarded-for", ()))
    return Head(
        method=method.decode("ascii", "replace"),
        path=request.channel.path,
        peer=evolve(peer, proxied=True) if any(map(headers.hasHeader, _OF_PROXIES)) else peer,
        secure=secure,
        forwarded_for=forwarded_for.decode("ascii", "replace") or None,
        forwarded_proto=header(b"x-forwarded-proto"),
        host=host,
        is_without_host=not headers.hasHeader(b"host") and request.channel.version == b"HTTP/1.0",
        origin=header(b"origin"),
        authorization=header(b"authorization"),
        cookie=None if cookie is None else cookie.decode("utf-8", "replace"),
        csrf=header(b"x-csrf-token"),
        encodings=header(b"accept-encoding"),
        etags=header(b"if-none-match"),
        last_event=header(b"last-event-id"),
        prefer=header(b"prefer"),
    )


# Refusals of calls: each is an answer of the type ``application/problem+json`` (RFC 9457).
#
# Beside the fields of the RFC it has ``code`` and ``message``, as EMQX's refusals have. If one argument or field of the
# body is at fault, ``field`` names it and ``allowed`` describes valid values.


PROBLEM = "application/problem+json"


#: of a request for a host that is not served
MISDIRECTED = 421
#: of a request with too many bytes of headers
HEADERS_TOO_LARGE = 431
#: seconds until a refused caller may try again: so often does the broker look for a database that is away
RETRY_AFTER = 5
#: the names of statuses that Twisted does not know
_TITLES = {MISDIRECTED: "Misdirected Request", HEADERS_TOO_LARGE: "Request Header Fields Too Large"}


def title_of(status: int) -> str:
    """Return the name of a status."""
    return _TITLES.get(status) or http.RESPONSES.get(status, b"Refused").decode()


class RefusedCall(Exception):
    """A call is refused with this status and code.

    ``more`` has further fields of the answer. Over HTTP, the answer waits for ``delay`` seconds.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        headers: tuple[tuple[str, str], ...] = (),
        *,
        field: str | None = None,
        allowed: str | None = None,
        more: Mapping[str, Any] | None = None,
        delay: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers
        self.field = field
        self.allowed = allowed
        self.more = more or {}
        self.delay = delay

    def answer(self) -> Answer:
        """Return the refusal as an answer."""
        return evolve(answer(self.content(), self.status, self.headers, content_type=PROBLEM), delay=self.delay)

    def content(self) -> dict[str, Any]:
        """Return the content of the answer."""
        message = str(self)
        content = {
            "type": "about:blank",
            "title": title_of(self.status),
            "status": self.status,
            "detail": message,
            "code": self.code,
            "message": message,
        }
        if self.field is not None:
            content["field"] = self.field
        if self.allowed is not None:
            content["allowed"] = self.allowed
        return {**content, **self.more}


def bad_request(message: str, field: str | None = None, allowed: str | None = None) -> RefusedCall:
    """Return the refusal of an invalid call."""
    return RefusedCall(http.BAD_REQUEST, "BAD_REQUEST", message, field=field, allowed=allowed)


def not_found(message: str) -> RefusedCall:
    """Return the refusal of a call for something that does not exist."""
    return RefusedCall(http.NOT_FOUND, "NOT_FOUND", message)


def unauthorized(message: str, delay: float = 0.0, more: Mapping[str, Any] | None = None) -> RefusedCall:
    """Return the refusal of a caller without a proven identity."""
    # Basic is not named here: a browser would ask for a name and a password by itself.
    challenge = (("WWW-Authenticate", 'Bearer realm="Holdfast"'),)
    return RefusedCall(http.UNAUTHORIZED, "UNAUTHORIZED", message, challenge, more=more, delay=delay)


def conflict(message: str) -> RefusedCall:
    """Return the refusal to make something that exists already."""
    return RefusedCall(http.CONFLICT, "ALREADY_EXISTS", message)


def unavailable(message: str) -> RefusedCall:
    """Return the refusal of a call that may succeed later."""
    later = (("Retry-After", str(RETRY_AFTER)),)
    return RefusedCall(http.SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", message, later)


def database_away() -> RefusedCall:
    """Return the refusal of a change while the database is known to be away."""
    return unavailable("the database is away, so nothing was changed; try it again later")


def not_allowed(methods: Collection[str]) -> RefusedCall:
    """Return the refusal of another method than these."""
    allowed = ", ".join(methods)
    message = f"allowed here: {allowed}"
    return RefusedCall(http.NOT_ALLOWED, "METHOD_NOT_ALLOWED", message, (("Allow", allowed),), allowed=allowed)


#: by the type of an exception: what makes the refusal of it
Refusals = Mapping[type[Exception], Callable[[Any], RefusedCall]]


def refusal_of(failure: Failure, refusals: Refusals, log: Logger) -> Answer:
    """Return the answer to a call that failed. Raises CancelledError if the caller has cancelled the call."""
    error = failure.value
    if isinstance(error, RefusedCall):
        return error.answer()
    for kind, refused in refusals.items():
        if isinstance(error, kind):
            return refused(error).answer()
    if isinstance(error, StorageFailure) and error.kind is FailureKind.REFUSED:
        return bad_request(error.detail).answer()
    if isinstance(error, StorageFailure):
        return unavailable(error.detail).answer()
    if isinstance(error, StoreUnusable | ConfigError):
        return unavailable(str(error)).answer()
    failure.trap(Exception)  # let SystemExit and KeyboardInterrupt pass
    if failure.check(CancelledError):
        failure.raiseException()
    log.failure("a call failed", failure)
    return RefusedCall(
        http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "this is a fault of the broker; see its log"
    ).answer()
