"""Calls of the API and their answers, free of any transport: the same over a socket and within a process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.web import http

JSON = "application/json"
NDJSON = "application/x-ndjson"


class RefusedCall(Exception):
    """The call is not answered with what it asked for, but with ``{"code": ..., "message": ...}``."""

    def __init__(self, status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers

    def answer(self) -> Answer:
        """Return the answer that says so."""
        return answer({"code": self.code, "message": str(self)}, self.status, self.headers)


def bad_request(message: str) -> RefusedCall:
    """Return the refusal of a call that makes no sense."""
    return RefusedCall(http.BAD_REQUEST, "BAD_REQUEST", message)


def not_found(message: str) -> RefusedCall:
    """Return the refusal of a call for what is not there."""
    return RefusedCall(http.NOT_FOUND, "NOT_FOUND", message)


@frozen
class Call:
    """What is asked for: method, path as it came (still percent-encoded), arguments of the query string, and body."""

    method: str
    path: str
    arguments: Mapping[str, str]
    body: bytes = b""


@frozen
class Answer:
    """What is answered: ``body``, or if there is ``more``, what that returns piece by piece until it returns b""."""

    status: int = http.OK
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    more: Callable[[], Deferred[bytes]] | None = None


Handler = Callable[[Call], Deferred[Answer]]
#: what there is: by path and method, the handler and the arguments it knows
Routes = Mapping[str, Mapping[str, tuple[Handler, tuple[str, ...]]]]


def answer(content: Any, status: int = http.OK, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, json.dumps(content, ensure_ascii=False).encode() + b"\n", JSON, headers)


#: the answer to what has been done and says nothing more
DONE = Answer(http.NO_CONTENT)
