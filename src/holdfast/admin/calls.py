"""Calls of the API and their answers, independent of a transport: the same over a socket and within a process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.web import http

from holdfast.admin.operators import UNKNOWN, Operator

JSON = "application/json"
NDJSON = "application/x-ndjson"


class RefusedCall(Exception):
    """A call is refused; the answer is ``{"code": ..., "message": ...}``."""

    def __init__(self, status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers

    def answer(self) -> Answer:
        """Return the refusal as an answer."""
        return answer({"code": self.code, "message": str(self)}, self.status, self.headers)


def bad_request(message: str) -> RefusedCall:
    """Return the refusal of an invalid call."""
    return RefusedCall(http.BAD_REQUEST, "BAD_REQUEST", message)


def not_found(message: str) -> RefusedCall:
    """Return the refusal of a call for something that does not exist."""
    return RefusedCall(http.NOT_FOUND, "NOT_FOUND", message)


@frozen
class Call:
    """A call: its method, its path (still percent-encoded), the arguments of its query string, and its body.

    ``operator`` is the local user who makes it.
    """

    method: str
    path: str
    arguments: Mapping[str, str]
    body: bytes = b""
    operator: Operator = UNKNOWN


@frozen
class Answer:
    """An answer: its ``body``, or the pieces that repeated calls of ``more`` return until it returns b"".

    ``note`` says for the audit log what the call has changed, without secrets.
    """

    status: int = http.OK
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    more: Callable[[], Deferred[bytes]] | None = None
    note: Mapping[str, object] = field(factory=dict)


Handler = Callable[[Call], Deferred[Answer]]
#: by path and method: the handler, and the names of the arguments that it accepts
Routes = Mapping[str, Mapping[str, tuple[Handler, tuple[str, ...]]]]


def answer(
    content: Any,
    status: int = http.OK,
    headers: tuple[tuple[str, str], ...] = (),
    note: Mapping[str, object] | None = None,
) -> Answer:
    """Return an answer with JSON content."""
    body = json.dumps(content, ensure_ascii=False).encode() + b"\n"
    return Answer(status, body, JSON, headers, note=note or {})


#: the answer to a call that succeeded and has no content
DONE = Answer(http.NO_CONTENT)
