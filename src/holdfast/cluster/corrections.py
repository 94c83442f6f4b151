"""Corrections: the last message that a subscriber gets of a topic is the retained one, whichever nodes have set it.

How it works. Two nodes may set one topic at the same time. Each sends its message to its own subscribers at once, and
to those of others behind its commit; so two subscribers may get the two messages in different orders. The database
decides which one is retained. A node remembers who has set a topic lately. If another one does so within
:data:`_LATELY`, the topic is *due*: :data:`_AFTER` later its retained message is read, and is sent once more, as a live
message, to the subscribers of this node. An empty message says that there is none any more.

A message may be stored late: the database is slow, or a policy delays its writes. So a change of this node counts as
made when it is stored, and before a topic is read, this node's own changes are written. If the stored change is older
than the last known one all the same, the topic is read again later, at most :data:`_TRIES` times. And a row that is
older than one that came before it makes its topic due however long ago that was.

Topics with one publishing node at a time, nearly all, cost an entry of a bounded table. If an entry leaves the table
because there are too many, its topic is due as well: nobody knows who sets it next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import define
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.core.messages import ApplicationMessage, RetainedMessage
from holdfast.core.tickets import StorageFailure
from holdfast.retained.service import RetainedMessages

#: seconds in which two nodes set a topic at the same time, as far as anybody knows
_LATELY = 10.0
#: seconds from the last change of a topic to its correction
_AFTER = 1.0
#: the topics that are remembered, and those that are due
_MOST, _MOST_DUE = 20_000, 10_000
#: topics that are corrected at once
_AT_ONCE = 50
#: how often a topic is read, a second later each time
_TRIES = 30


@define
class _Setter:
    """The last change of a topic that is known here: who has made it, when, and which one it was.

    ``revision`` is 0 if it is not known. ``tries``: how often the topic was read in vain since.
    """

    node: int
    at: float
    revision: int
    is_clear: bool
    tries: int = 0


class Corrections:
    """Sends retained messages once more where two nodes have set them. ``send`` gives them to the own subscribers."""

    _log = Logger()

    def __init__(
        self, retained: RetainedMessages, clock: IReactorTime, send: Callable[[ApplicationMessage], None]
    ) -> None:
        self._retained = retained
        self._clock = clock
        self._send = send
        #: by topic: its last change
        self._setters: OrderedDict[str, _Setter] = OrderedDict()
        self._due: OrderedDict[str, float] = OrderedDict()
        self._timer: IDelayedCall | None = None
        self._is_over = False
        #: corrections sent, and topics that were not corrected because too many were due
        self.sent = self.left_out = 0

    def changed(self, topic: str, node: int, revision: int = 0, is_clear: bool = False) -> None:
        """Note that a node has set or cleared a topic, with this revision (0: not known)."""
        now = self._clock.seconds()
        before = self._setters.pop(topic, None)
        setter = self._setters[topic] = _Setter(node, now, revision, is_clear)
        if before is not None and before.revision > revision:  # an older change of another node comes late
            setter.revision, setter.is_clear = before.revision, before.is_clear
        if topic in self._due or (
            before is not None and before.node != node and (now - before.at < _LATELY or 0 < revision < before.revision)
        ):
            self._put_off(topic, now)
        while len(self._setters) > _MOST:
            oldest, last = self._setters.popitem(last=False)
            if now - last.at < _LATELY:
                self._put_off(oldest, now)

    def written(self, topic: str, node: int) -> None:
        """Note that a change of a topic by this node is stored, or has failed: until then it may yet be the last."""
        last, now = self._setters.get(topic), self._clock.seconds()
        if last is not None and last.node == node:
            last.at = now
        elif last is not None and now - last.at < _LATELY:
            self._put_off(topic, now)

    def stop(self) -> None:
        """Correct nothing more."""
        self._is_over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _put_off(self, topic: str, now: float) -> None:
        self._due.pop(topic, None)
        if len(self._due) >= _MOST_DUE:
            self.left_out += 1
            return
        self._due[topic] = now + _AFTER
        if self._timer is None and not self._is_over:
            self._timer = self._clock.callLater(_AFTER, self._correct)

    def _correct(self) -> None:
        """Read the topics whose time has come, and look again for the others."""
        self._timer = None
        now = self._clock.seconds()
        ready: list[str] = []
        while self._due and len(ready) < _AT_ONCE:
            topic, at = next(iter(self._due.items()))
            if at > now:
                break
            del self._due[topic]
            ready.append(topic)
        for topic in ready:
            self._retained.store.flushed(topic).when_settled(partial(self._read, topic, now))
        if self._due and not self._is_over:
            wait = 0.05 if ready else max(0.05, next(iter(self._due.values())) - now)
            self._timer = self._clock.callLater(wait, self._correct)

    def _read(self, topic: str, began: float, _: object) -> None:
        reading = self._retained.store.last_change(topic)
        reading.addCallback(self._found, topic, began).addErrback(self._failed, topic)

    def _found(self, change: tuple[int, RetainedMessage | None], topic: str, began: float) -> None:
        revision, found = change
        if self._is_over or topic in self._due:  # it has changed again
            return
        last = self._setters.get(topic)
        if last is not None and last.at >= began:  # the stored message may be older than the last live one
            self._put_off(topic, self._clock.seconds())
            return
        if last is not None and revision < last.revision and not (revision == 0 and last.is_clear):
            last.tries += 1
            if last.tries < _TRIES:
                self._put_off(topic, self._clock.seconds())
            else:
                self.left_out += 1
            return
        self.sent += 1
        if found is None:
            self._send(ApplicationMessage(topic, b"", 1, True))
            return
        message = ApplicationMessage(
            topic, found.payload, min(found.qos, 1), True, found.client_id, found.username, found.properties,
            found.expires_at,
        )  # fmt: skip
        self._send(message)

    def _failed(self, failure: Any, topic: str) -> None:
        failure.trap(StorageFailure)
        self._put_off(topic, self._clock.seconds())
