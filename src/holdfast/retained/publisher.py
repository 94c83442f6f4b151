"""Publishers of operators' changes of retained messages, as administration and restoring see them."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Interface, implementer

from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.service import RetainedMessages
from holdfast.tickets import CommitTicket


class IPublisher(Interface):
    """Publishes changes by operators: messages with RETAIN 1, and clears."""

    def publish(message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Retain the message, or clear its topic if the payload is empty. May raise RetainRefused.

        The ticket is settled when the change is durable.
        """

    def room(topic: str) -> Deferred[None] | None:
        """Return None if a message may be published to this topic now.

        Otherwise the reactor has other work, or a subscriber is behind: publish when the Deferred fires, in that turn.
        """


@implementer(IPublisher)
class SilentPublisher:
    """Changes the retained messages and tells no subscriber: on request, or where there is no subscriber."""

    def __init__(self, retained: RetainedMessages) -> None:
        self._retained = retained

    def publish(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Retain the message, or clear its topic if the payload is empty. May raise RetainRefused."""
        return self._retained.retain(message, origin, live=False)

    def room(self, topic: str) -> None:
        """Return None: there is always room."""
        return
