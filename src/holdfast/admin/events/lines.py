"""The lines of ``text/event-stream``. All data is JSON in ASCII, so no text of a client can add a line."""

from __future__ import annotations

CONTENT_TYPE = "text/event-stream"


def event(name: str, data: bytes, identifier: str | None = None) -> bytes:
    """Return an event."""
    lines = [b"event: " + name.encode(), b"data: " + data]
    if identifier is not None:
        lines.insert(1, b"id: " + identifier.encode())
    return b"\n".join(lines) + b"\n\n"


def beginning(retry: int, identifier: str | None) -> bytes:
    """Return the first lines: the milliseconds after which a browser connects again, and its token."""
    return b"retry: %d\n" % retry + _without_data(identifier)


def ping(identifier: str | None) -> bytes:
    """Return a comment that keeps the connection open, and the client's token."""
    return b": ping\n" + _without_data(identifier)


def _without_data(identifier: str | None) -> bytes:
    return b"\n" if identifier is None else b"id: " + identifier.encode() + b"\n\n"
