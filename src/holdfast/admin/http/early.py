"""Refusals of requests that have not arrived as a whole: their answers are written to the connection itself.

A connection that is closed while its client still sends is reset, and a reset can destroy the answer before the client
has read it. So the answer says that the connection ends. What still arrives is dropped for a few seconds.
"""

from __future__ import annotations

from holdfast.admin.calls.problems import PROBLEM, RefusedCall, title_of

#: seconds in which a client may still send after its refusal
LINGER = 5.0


def bytes_of(refused: RefusedCall) -> bytes:
    """Return the whole answer that refuses a request, as HTTP/1.1 has it."""
    body = refused.answer().body
    lines = (
        f"HTTP/1.1 {refused.status} {title_of(refused.status)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Content-Type: {PROBLEM}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body
