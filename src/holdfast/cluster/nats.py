"""The protocol of NATS for its clients, without I/O: what a server says, and what a client says.

How it works. The protocol consists of lines; a payload follows MSG and HMSG, and its length stands at the end of their
line. :meth:`NatsParser.feed` takes bytes as they arrive and returns the events that they complete:

    INFO {"max_payload":1048576}                                Info
    PING                                                        Pinged
    MSG holdfast.plant.2 1 5  and  hello                        Message("holdfast.plant.2", "1", b"hello")
    HMSG holdfast.plant.2 1 12 17  and  NATS/1.0, hello         the same: headers are left out
    -ERR 'Authorization Violation'                              Refused("Authorization Violation")

The parser holds at most one line and one payload. The payload of a message that is too large is passed over, and the
event is :class:`TooLarge`: whoever may publish to a subject cannot end the connection of its subscribers. A line that
is no line of NATS raises :class:`NatsError`; the events before it are its ``events``. However the bytes are cut, the
events are the same.

Left out: JetStream, requests, queue groups and headers. What is lost on the way has to be noticed by others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from holdfast.hot_values import hot_frozen

#: bytes of a line; INFO names all servers of a cluster
LONGEST_LINE = 32_768
#: bytes of a payload
LARGEST_PAYLOAD = 1 << 20

PING = b"PING\r\n"
PONG = b"PONG\r\n"

#: a length in a line: a greater one than those of nine digits is no length
_LENGTH = re.compile(rb"[0-9]{1,9}")
#: the beginnings of lines that a payload follows
_MESSAGES = frozenset((b"MSG ", b"MSG\t", b"HMSG"))
_SPACES = re.compile(r"[\x00-\x20\x7f]")


class NatsError(Exception):
    """The server has sent something that is no NATS. ``events`` are those before it."""

    def __init__(self, text: str, events: list[Event]) -> None:
        super().__init__(text)
        self.events = events


@frozen
class Info:
    """What the server says of itself. Values that it does not say, or of another type, are the defaults."""

    server: str = ""
    version: str = ""
    max_payload: int = LARGEST_PAYLOAD  #: bytes
    needs_tls: bool = False
    offers_tls: bool = False
    urls: tuple[str, ...] = ()  #: host and port of the other servers of its cluster
    is_leaving: bool = False  #: the server is about to stop


@hot_frozen
class Message:
    """A message for the subscription ``sid``."""

    subject: str
    sid: str
    payload: bytes = field(repr=False)


@frozen
class TooLarge:
    """A message for the subscription ``sid`` was passed over: its payload has ``size`` bytes."""

    subject: str
    sid: str
    size: int


@frozen
class Pinged:
    """The server wants a PONG."""


@frozen
class Ponged:
    """The server has taken everything that was sent before a PING."""


@frozen
class Accepted:
    """The server says +OK, which it does for verbose clients only."""


@frozen
class Refused:
    """The server refuses something, and may end the connection."""

    text: str


Event = Info | Message | TooLarge | Pinged | Ponged | Accepted | Refused


class NatsParser:
    """Makes events of the bytes that a server sends. A payload has at most ``largest`` bytes."""

    def __init__(self, largest: int = LARGEST_PAYLOAD) -> None:
        self._largest = largest
        self._kept: list[bytes] = []  # the beginning of a line or of a message
        self._kept_size = 0
        self._needed = 0  # bytes with which the message is complete, 0 if its line is not
        self._skipped = 0  # bytes to pass over
        self._failed: str | None = None

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete. Raises NatsError, then for all further bytes too."""
        events: list[Event] = []
        if self._failed is not None:
            raise NatsError(self._failed, events)
        if self._kept:
            self._kept.append(data)
            self._kept_size += len(data)
            if self._kept_size < self._needed:
                return events
            data = b"".join(self._kept)
            self._kept.clear()
            self._kept_size = 0
        try:
            rest = self._read(data, events)
        except _Malformed as malformed:
            self._failed = str(malformed)
            raise NatsError(self._failed, events) from None
        if rest < len(data):
            self._kept.append(data[rest:])
            self._kept_size = len(data) - rest
        return events

    def _read(self, data: bytes, events: list[Event]) -> int:
        """Add the events that these bytes complete, and return how many bytes they are."""
        at = 0
        size = len(data)
        while True:
            if self._skipped:
                skipped = min(self._skipped, size - at)
                self._skipped -= skipped
                at += skipped
            if at == size:
                return at
            end = data.find(b"\r\n", at, at + LONGEST_LINE + 2)
            if end < 0:
                if size - at > LONGEST_LINE + 1:
                    raise _Malformed(f"a line has more than {LONGEST_LINE} bytes")
                self._needed = 0
                return at
            word = data[at : at + 4].upper()
            if word not in _MESSAGES:
                events.append(_line(data[at:end]))
                at = end + 2
                continue
            fields = data[at:end].split()
            subject, sid, before, length = _message_line(fields)
            if length > self._largest:
                events.append(TooLarge(subject, sid, length))
                at = end + 2
                self._skipped = length + 2
                continue
            begin = end + 2
            stop = begin + length
            if stop + 2 > size:
                self._needed = stop + 2 - at
                return at
            if data[stop : stop + 2] != b"\r\n":
                raise _Malformed("a payload does not end where its length says")
            events.append(Message(subject, sid, data[begin + before : stop]))
            at = stop + 2


class _Malformed(Exception):
    """A line is not one of NATS."""


def _message_line(fields: list[bytes]) -> tuple[str, str, int, int]:
    """Return subject, subscription, the length of the headers, and that of headers and payload together."""
    lengths = 1 if fields[0].upper() == b"MSG" else 2
    # a subject for the answer may stand before the lengths
    if not 3 + lengths <= len(fields) <= 4 + lengths or len(fields[0]) != 2 + lengths:
        raise _Malformed(f"no line of a message: {_shown(b' '.join(fields))}")
    numbers = fields[-lengths:]
    if not all(map(_LENGTH.fullmatch, numbers)):
        raise _Malformed(f"no length of a message: {_shown(b' '.join(numbers))}")
    before, length = (0 if lengths == 1 else int(numbers[0])), int(numbers[-1])
    if before > length:
        raise _Malformed("headers are longer than their message")
    return fields[1].decode("utf-8", "replace"), fields[2].decode("utf-8", "replace"), before, length


def _line(line: bytes) -> Event:
    """Return the event of a line that no payload follows."""
    word, rest = (*line.split(None, 1), b"", b"")[:2]
    match word.upper():
        case b"PING":
            return Pinged()
        case b"PONG":
            return Ponged()
        case b"+OK":
            return Accepted()
        case b"-ERR":
            return Refused(rest.decode("utf-8", "replace").strip().strip("'"))
        case b"INFO":
            return _info(rest)
    raise _Malformed(f"no line of NATS: {_shown(line)}")


def _info(text: bytes) -> Info:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _Malformed(f"INFO has no JSON: {_shown(text)}") from None
    if not isinstance(found, dict):
        raise _Malformed(f"INFO has no object: {_shown(text)}")
    payload, urls = found.get("max_payload"), found.get("connect_urls")
    return Info(
        server=_text(found.get("server_name")),
        version=_text(found.get("version")),
        max_payload=payload if type(payload) is int and payload > 0 else LARGEST_PAYLOAD,
        needs_tls=found.get("tls_required") is True,
        offers_tls=found.get("tls_available") is True,
        urls=tuple(url for url in urls if isinstance(url, str)) if isinstance(urls, list) else (),
        is_leaving=found.get("ldm") is True,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shown(text: bytes) -> str:
    return repr(text[:80])[1:]


# The lines of a client.


def connect(options: Mapping[str, Any]) -> bytes:
    """Return CONNECT with these options. A text in them is escaped, so that it cannot end the line."""
    return b"CONNECT %b\r\n" % json.dumps(options, separators=(",", ":")).encode("ascii")


def publish(subject: str, payload: bytes) -> bytes:
    """Return PUB with this payload. Raises ValueError if no message can have the subject."""
    return b"PUB %b %d\r\n%b\r\n" % (_subject(subject), len(payload), payload)


def subscribe(subject: str, sid: int) -> bytes:
    """Return SUB: ``sid`` names the subscription. Raises ValueError if no message can have the subject."""
    return b"SUB %b %d\r\n" % (_subject(subject), sid)


def unsubscribe(sid: int) -> bytes:
    """Return UNSUB, which ends a subscription."""
    return b"UNSUB %d\r\n" % sid


def _subject(subject: str) -> bytes:
    if not subject or _SPACES.search(subject):
        raise ValueError("a subject of NATS has at least one character, and neither spaces nor control characters")
    return subject.encode()


def token(name: str) -> str:
    """Return a name as one part of a subject: others than letters, digits, ``-`` and ``_`` as ``=XX`` of UTF-8."""
    return "".join(
        chr(byte) if byte < 128 and (chr(byte).isalnum() or chr(byte) in "-_") else f"={byte:02X}"
        for byte in name.encode()
    )
