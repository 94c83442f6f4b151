"""Messages that operators publish: with or without RETAIN, on the same way as their changes of retained messages."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.messages import ApplicationMessage
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.routing.operator_publisher import OperatorPublisher
from holdfast.tickets import CommitTicket


class OperatorMessages:
    """Publishes any message of an operator, when there is room for it."""

    def __init__(self, publisher: OperatorPublisher, retained: IRetainedMessages) -> None:
        self._publisher = publisher
        self._retained = retained

    @inlineCallbacks
    def publish(self, message: ApplicationMessage) -> Generator[Deferred[Any], Any, tuple[CommitTicket, bool]]:
        """Publish. Fires with the ticket of all that this stores, and whether there was a subscriber.

        Fails with ``RetainRefused`` if the message has RETAIN 1 and is over a limit; then nobody gets it.
        """
        waiting = self._publisher.room(message.topic)
        if waiting is not None:
            yield waiting
        if message.retain:
            undecided = self._retained.undecided(message)
            if undecided is not None:
                yield undecided
        return self._publisher.send(message)
