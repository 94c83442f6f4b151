"""Reads the answers to the questions of all Clients: a few at a time, one for each payer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from holdfast.auth.interfaces import Principal
from holdfast.charging import payer_of
from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.questions import Question
from holdfast.retained.queries.levels import position_behind
from holdfast.retained.queries.permitted import IAsker, PermittedMessages
from holdfast.retained.queries.permitted_tree import PermittedTree
from holdfast.retained.queries.scan_places import ScanPlaces
from holdfast.retained.queries.tree import base_of
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.asking.answers import Entries, Messages, json_of
from holdfast.sessions.asking.cursors import Cursors
from holdfast.topics import ASK_COUNT, ASK_TREE, EVERY_TOPIC

#: the nodes that are encoded in one turn, some microseconds each
_NODES_AT_ONCE = 200


class Questions:
    """Answers questions. ``now`` returns milliseconds since the epoch.

    ``names_proven`` tells whether User Names are payers (:mod:`holdfast.charging`).
    """

    def __init__(
        self, retained: RetainedMessages, clock: IReactorTime, now: Callable[[], int], names_proven: bool
    ) -> None:
        self._clock = clock
        self._messages = PermittedMessages(retained.store, retained.sources, now, self.pause)
        self._tree = PermittedTree(self._messages)
        self._places = ScanPlaces()
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

    @inlineCallbacks
    def answer(
        self, question: Question, asker: IAsker, principal: Principal, most: int
    ) -> Generator[Deferred[Any], Any, bytes]:
        """Return the answer, of ``most`` bytes.

        Raises :class:`holdfast.sessions.asking.answers.TooLarge`,
        :class:`holdfast.retained.queries.scan_places.TooManyScans` or :class:`holdfast.tickets.StorageFailure`.
        """
        payer = payer_of(principal.username, principal.client_id, self._names_proven)
        leave = yield self._places.take(payer)
        try:
            yield self._messages.flushed(EVERY_TOPIC if question.kind == ASK_TREE else question.topic_filter)
            after = self._cursors.read(question)
            if question.kind == ASK_TREE:
                found: bytes = yield self._level(question, asker, after, most)
            elif question.kind == ASK_COUNT:
                counted = yield self._messages.count(asker, question.topic_filter, after)
                tally, place = counted.tally, self._cursors.shown(counted.place, question)
                found = json_of({"count": tally.count, "bytes": tally.bytes, "after": place})
            else:
                found = yield self._page(question, asker, after, most)
        finally:
            leave()
        return found

    @inlineCallbacks
    def _page(self, question: Question, asker: IAsker, after: str, most: int) -> Generator[Deferred[Any], Any, bytes]:
        messages = Messages(question.fields, most)
        payloads = "payload" in question.fields
        place = yield self._messages.page(asker, question.topic_filter, after, question.limit, payloads, messages.take)
        return messages.finish(place, lambda place: self._cursors.shown(place, question))

    @inlineCallbacks
    def _level(self, question: Question, asker: IAsker, after: str, most: int) -> Generator[Deferred[Any], Any, bytes]:
        level = yield self._tree.level(asker, question.parent, after or None, question.limit)
        nodes = Entries("nodes", most)
        for number, node in enumerate(level.nodes, 1):
            if not nodes.add(json_of(node.record), position_behind(node.topic)):
                break
            if not number % _NODES_AT_ONCE:
                yield self.pause()
        return nodes.finish(level.place, lambda place: self._cursors.shown(place, question), complete=level.complete)
