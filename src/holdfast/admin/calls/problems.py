"""Refusals of calls: each is an answer of the type ``application/problem+json`` (RFC 9457).

Beside the fields of the RFC it has ``code`` and ``message``, as EMQX's refusals have. If one argument or field of the
body is at fault, ``field`` names it and ``allowed`` describes valid values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import evolve
from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.calls.call import Answer, answer
from holdfast.config.problems import ConfigError
from holdfast.storage.errors import StoreUnusable
from holdfast.tickets import FailureKind, StorageFailure

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
