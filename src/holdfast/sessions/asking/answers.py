"""Answers as JSON, cut so that they fit a packet for their Client."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from holdfast.retained.dates import date_of
from holdfast.retained.queries.permitted import Place
from holdfast.retained.records import LARGEST_SHOWN, properties_of
from holdfast.retained.store.values import ListedMessage

#: The bytes of an answer with several messages or nodes, and of one with a single message.
SEVERAL, SINGLE = 256 * 1024, LARGEST_SHOWN * 3 // 2
#: The bytes around the entries, beside the topic of the last one.
_AROUND = 40


class TooLarge(Exception):
    """Not even one entry fits a packet for the Client."""


class Entries:
    """The entries of one answer: a list under a ``name``, of ``most`` bytes at most."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = min(most, SINGLE)
        self._entries: list[tuple[bytes, str]] = []
        self._bytes = _AROUND
        self._is_full = False
        self._left_out = 0  # entries that no answer has room for

    def add(self, entry: bytes, place: str, shorter: Callable[[], bytes] | None = None) -> bool:
        """Add an entry, and the place behind it. Return False if another answer has more room for it.

        One that is alone and too long is made ``shorter``, or left out.
        """
        most = (self._most if not self._entries else min(self._most, SEVERAL)) - len(place.encode())
        if self._bytes + len(entry) > most:
            if self._entries:
                self._is_full = True
                return False
            if shorter is not None:
                entry = shorter()
            if self._bytes + len(entry) > most:
                self._left_out += 1
                return True
        self._bytes += len(entry) + 1
        self._entries.append((entry, place))
        return True

    def finish(self, place: Place | None, shown: Callable[[Place | None], str | None], **others: Any) -> bytes:
        """Return the answer. It goes on behind ``place``, or behind the last entry if it is full.

        ``shown`` makes the text of a place. Raises :class:`TooLarge`.
        """
        if self._left_out:
            others["left_out"] = self._left_out
        if self._is_full:
            place = Place(self._entries[-1][1], told=True)
        while True:
            rest = json_of({"after": shown(place), **others})
            listed = b",".join(entry for entry, _ in self._entries)
            answer = b'{"%s":[%s],%s' % (self._name.encode(), listed, rest[1:])
            if len(answer) <= self._most:
                return answer
            if len(self._entries) < 2:
                raise TooLarge
            self._entries.pop()
            place = Place(self._entries[-1][1], told=True)


class Messages(Entries):
    """The answer to ``$retained/get``, with these fields of each message."""

    def __init__(self, fields: tuple[str, ...], most: int) -> None:
        super().__init__("messages", most)
        self._fields = fields

    def take(self, listed: ListedMessage) -> bool:
        """Add a message, without its payload if that fits no answer."""
        has_payload = "payload" in self._fields and listed.size <= LARGEST_SHOWN
        entry = self._encoded(listed, has_payload)
        return self.add(entry, listed.message.topic, (lambda: self._encoded(listed, False)) if has_payload else None)

    def _encoded(self, listed: ListedMessage, with_payload: bool) -> bytes:
        return json_of({name: _FIELDS[name](listed, with_payload) for name in self._fields})


_FIELDS: dict[str, Callable[[ListedMessage, bool], Any]] = {
    "topic": lambda listed, _: listed.message.topic,
    "payload": lambda listed, with_payload: b64encode(listed.message.payload).decode() if with_payload else None,
    "qos": lambda listed, _: listed.message.qos,
    "size": lambda listed, _: listed.size,
    "revision": lambda listed, _: str(listed.message.revision),
    "stored_at": lambda listed, _: date_of(listed.message.stored_at),
    "expires_at": lambda listed, _: None if listed.message.expires_at is None else date_of(listed.message.expires_at),
    "properties": lambda listed, _: properties_of(listed.message.properties),
}


def json_of(value: object) -> bytes:
    """Return JSON in UTF-8, as short as possible."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
