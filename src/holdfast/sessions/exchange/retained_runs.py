"""Retained runs of one Client: messages that nobody subscribes to, retained together.

How it works. The parser asks :class:`RetainedRuns` how many packets a run may have and which topics it takes, and hands
the run over. The messages are retained with one ticket, and all PUBACKs leave in one piece when it is settled. An
example with two messages that the commit stores, and one that it refuses:

    run of 3 packets      one ticket; 3 messages count for the Receive Maximum
    the commit            the second row is refused
    PUBACK, PUBACK (0x83), PUBACK

Everything else goes one packet at a time: a topic with subscribers, a limit of the retainer that has to be looked up or
is reached, changes that wait for their commit in numbers that pause publishers, an authorizer that promises no answers.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.tickets import StorageFailure
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.limits import RetainMode
from holdfast.wire import RetainedRun

#: the most packets of a retained run: each takes 5 to 10 microseconds
LONGEST_RUN = 500

#: answers a message whose commit failed: its Packet Identifier and the failure
NotStored = Callable[[int, StorageFailure], bytes | None]


class RetainedRuns:
    """Takes the retained runs of one Client. ``allowance`` tells how many QoS 1 messages the Receive Maximum allows."""

    __slots__ = (
        "_allowance",
        "_authorizer",
        "_find",
        "_levels",
        "_link",
        "_not_stored",
        "_parts",
        "_session",
    )

    def __init__(
        self,
        link: Connection,
        session: Session,
        parts: BrokerParts,
        allowance: Callable[[], int],
        not_stored: NotStored,
    ) -> None:
        self._link = link
        self._parts = parts
        self._allowance = allowance
        self._not_stored = not_stored
        self._session = session
        self._levels = link.limits.max_topic_levels
        # Looked up once: they are called for each message.
        self._find = parts.router.table.find
        self._authorizer = parts.authorizer

    def most(self, qos: int) -> int:
        """Return how many packets with this QoS the next run may have. Less than 2: there is none."""
        parts, limits = self._parts, self._link.limits
        if (
            self._authorizer.epoch is None
            or not parts.retained.retains_together
            or parts.pressure.active
            or qos > limits.max_qos_allowed
            or not limits.retain_available
            or limits.retained_messages_mode is not RetainMode.ENABLED
        ):
            return 0
        return min(LONGEST_RUN, self._allowance()) if qos else LONGEST_RUN

    def takes(self, topic: str, qos: int) -> bool:
        """Tell whether messages of this topic may be in a retained run: it has no subscribers and is allowed."""
        route = self._find(topic)
        return (
            not (route.matches or route.groups or route.withheld)
            and topic.count("/") < self._levels
            and self._parts.retained.admission.is_plain(topic)
            and not self._is_special(topic)
            and self._authorizer.may_publish(self._session.principal, topic, qos, True) is True
        )

    def _is_special(self, topic: str) -> bool:
        """Tell whether the router has to look at each message of a topic: births and deaths, and copies of births."""
        router = self._parts.router
        return router.sparkplug is not None and (router.sparkplug.concerns(topic) or router.is_own(topic))

    def take(self, run: RetainedRun) -> bool:
        """Retain the messages of a run. Return False, without any effect, if they have to be taken one by one."""
        parts, link = self._parts, self._link
        number = run.count
        if run.qos and not link.takes_answers(5 * number):
            return False
        session = self._session
        ticket = parts.retained.retain_together(
            run.topics, run.payloads, run.qos, session.client_id, session.principal.username
        )
        if ticket is None:
            return False
        parts.counters.messages_received += number
        if not run.qos:
            if not ticket.settled:
                parts.pressure.charge(link)
            return True
        identifiers, not_stored = run.identifiers, self._not_stored

        def refusal(place: int, failure: StorageFailure) -> bytes | None:
            return not_stored(int.from_bytes(identifiers[place], "big"), failure)

        link.acknowledgements.send_together_when_committed(ticket, run.acknowledgements(), number, refusal)
        return True
