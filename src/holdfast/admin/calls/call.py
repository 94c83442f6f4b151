"""Calls of the API and their answers, independent of a transport: the same over a socket and within a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.web import http

from holdfast.admin.callers.caller import ANYONE, Caller
from holdfast.admin.calls.head import Head
from holdfast.terminal_text import safe_json

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv; charset=utf-8"

#: seconds until a call is late, and the most that its caller may name
PATIENCE, MOST_PATIENCE = 10, 60


#: stands for JSON that is not read yet
UNREAD = object()


@frozen
class Call:
    """A call: its method, its path (still percent-encoded), its arguments, and its body.

    The arguments are those of the query string; for a handler, also the values in the path. ``accept`` is the header of
    this name; ``head`` has what else the request says, if it came over HTTP. ``is_current`` tells whether the caller
    may still make calls: a long answer ends with the caller's key or session. ``parsed`` is the JSON in a long body,
    which a thread has read.
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

    @property
    def prefers_job(self) -> bool:
        """Whether the caller asks for a job in place of a late answer."""
        return self.head is not None and self.head.prefers_job

    @property
    def patience(self) -> int:
        """The seconds that the caller waits for the answer."""
        wanted = None if self.head is None else self.head.prefers_wait
        return PATIENCE if wanted is None else max(1, min(wanted, MOST_PATIENCE))


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
