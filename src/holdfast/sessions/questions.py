"""Reads the answers to the questions of all Clients: a few at a time, one for each payer."""

from __future__ import annotations

import json
import os
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from holdfast.core.clients import payer_of
from holdfast.core.extensions import BadRequest, Question
from holdfast.core.topics import ASK_COUNT, ASK_TREE, EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast.identity.interfaces import Grant, Principal
from holdfast.retained.permitted import IAsker, IPublished, PermittedMessages, PermittedTree, Place
from holdfast.retained.records import LARGEST_SHOWN, properties_of
from holdfast.retained.searches import scan_places
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.values import ListedMessage
from holdfast.retained.tree import base_of, position_behind
from holdfast.scheduling.waiting import as_deferred

#: the nodes that are encoded in one turn, some microseconds each
_NODES_AT_ONCE = 200


class Questions:
    """Answers questions. ``now`` returns milliseconds since the epoch.

    ``names_proven`` tells whether User Names are payers (:mod:`holdfast.core.clients`).
    """

    def __init__(
        self, retained: RetainedMessages, clock: IReactorTime, now: Callable[[], int], names_proven: bool
    ) -> None:
        self._clock = clock
        self._messages = PermittedMessages(retained.store, retained.sources, now, self.pause)
        self._tree = PermittedTree(self._messages)
        self._places = scan_places()
        self._cursors = Cursors()
        self._names_proven = names_proven

    def pause(self) -> Deferred[None]:
        """Fire in a later turn of the reactor."""
        return deferLater(self._clock, 0)

    def check(self, question: Question) -> None:
        """Raise :class:`BadRequest` if the question goes on after a place that is not known."""
        place = self._cursors.read(question)
        base = base_of(question.parent)
        if question.kind == ASK_TREE and place and not base <= place <= position_behind(base[:-1] or "\U0010ffff"):
            raise BadRequest("after is what the last answer to the same question said")

    @as_deferred
    async def answer(self, question: Question, asker: IAsker, principal: Principal, most: int) -> bytes:
        """Return the answer, of ``most`` bytes.

        Raises :class:`holdfast.sessions.questions.TooLarge`,
        :class:`holdfast.scheduling.fair_line.LineFull` or :class:`holdfast.core.tickets.StorageFailure`.
        """
        payer = payer_of(principal.username, principal.client_id, self._names_proven)
        leave = await self._places.take(payer)
        try:
            await self._messages.flushed(EVERY_TOPIC if question.kind == ASK_TREE else question.topic_filter)
            after = self._cursors.read(question)
            if question.kind == ASK_TREE:
                found: bytes = await self._level(question, asker, after, most)
            elif question.kind == ASK_COUNT:
                counted = await self._messages.count(asker, question.topic_filter, after)
                tally, place = counted.tally, self._cursors.shown(counted.place, question)
                found = json_of({"count": tally.count, "bytes": tally.bytes, "after": place})
            else:
                found = await self._page(question, asker, after, most)
        finally:
            leave()
        return found

    @as_deferred
    async def page(
        self,
        question: Question,
        asker: IAsker,
        principal: Principal,
        most: int,
        told: Callable[[ListedMessage], None],
    ) -> MessagePage:
        """Return the page of messages that answers a question of ``$retained/get``. ``told`` gets each of them.

        Raises :class:`holdfast.scheduling.fair_line.LineFull` or :class:`holdfast.core.tickets.StorageFailure`.
        """
        leave = await self._places.take(payer_of(principal.username, principal.client_id, self._names_proven))
        try:
            await self._messages.flushed(question.topic_filter)
            messages = Messages(question.fields, most)

            def take(listed: ListedMessage) -> bool:
                taken = messages.take(listed)
                if taken:
                    told(listed)
                return taken

            after, payloads = self._cursors.read(question), "payload" in question.fields
            place = await self._messages.page(asker, question.topic_filter, after, question.limit, payloads, take)
        finally:
            leave()
        return messages.page(place, lambda place: self._cursors.shown(place, question))

    @as_deferred
    async def permits(self, asker: IAsker, grant: Grant, message: IPublished) -> bool:
        """Tell whether a Client may see a retained message of a Topic Filter with this grant."""
        return await self._messages.permits(asker, grant, message)

    async def _page(self, question: Question, asker: IAsker, after: str, most: int) -> bytes:
        messages = Messages(question.fields, most)
        payloads = "payload" in question.fields
        place = await self._messages.page(asker, question.topic_filter, after, question.limit, payloads, messages.take)
        return messages.finish(place, lambda place: self._cursors.shown(place, question))

    async def _level(self, question: Question, asker: IAsker, after: str, most: int) -> bytes:
        level = await self._tree.level(asker, question.parent, after or None, question.limit)
        nodes = Entries("nodes", most)
        for number, node in enumerate(level.nodes, 1):
            if not nodes.add(json_of(node.record), position_behind(node.topic)):
                break
            if not number % _NODES_AT_ONCE:
                await self.pause()
        return nodes.finish(level.place, lambda place: self._cursors.shown(place, question), complete=level.complete)


# Answers as JSON, cut so that they fit a packet for their Client.


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

    def page(self, place: Place | None, shown: Callable[[Place | None], str | None]) -> MessagePage:
        """Return the entries themselves, as far as there was room for them."""
        if self._is_full:
            place = Place(self._entries[-1][1], told=True)
        return MessagePage([entry for entry, _ in self._entries], shown(place))

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


@frozen
class MessagePage:
    """A page of messages, each as JSON, and what a question for the next page says in ``after``; None at the end."""

    entries: Sequence[bytes]
    after: str | None


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


# The places where answers ended, as Clients get them: ``after``.
#
# How it works. A Client may know the topic of a message that it was told of: the place is that topic, behind ``=``, and
# holds for any time. Another place may be a topic that the Client may not know. It is encrypted, behind ``~``, with a
# key of this process, and bound to its question: so it tells nothing, and holds until the broker ends.


_TOLD, _SEALED = "=", "~"
_KEY, _NONCE = 32, 12


class Cursors:
    """Makes and reads ``after``."""

    def __init__(self) -> None:
        self._key = os.urandom(_KEY)

    def shown(self, place: Place | None, question: Question) -> str | None:
        """Return what the answer says; None at the end."""
        if place is None:
            return None
        if place.told:
            return _TOLD + place.topic
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only here: most brokers need none

        nonce = os.urandom(_NONCE)
        sealed = nonce + AESGCM(self._key).encrypt(nonce, place.topic.encode(), _bound(question))
        return _SEALED + urlsafe_b64encode(sealed).decode()

    def read(self, question: Question) -> str:
        """Return the topic to go on after, "" for the beginning. Raises :class:`BadRequest`."""
        text = question.after
        if not text or (text.startswith(_TOLD) and "\0" not in text):
            return text[1:]
        place = self._opened(text, question) if text.startswith(_SEALED) else None
        if place is None:
            raise BadRequest("after is what the last answer to the same question said, from this run of the broker")
        return place

    def _opened(self, text: str, question: Question) -> str | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            sealed = urlsafe_b64decode(text[1:].encode())
            opened = AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound(question))
        except (ValueError, InvalidTag):
            return None
        return opened.decode()


def _bound(question: Question) -> bytes:
    return f"{question.kind} {question.topic_filter}".encode()
