"""Messages that are over a limit of the retainer, and are delivered all the same: from Clients, or as Wills."""

from __future__ import annotations

from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.quota.limits import Limit, RetainRefused
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.tickets import CommitTicket


def not_retained(
    message: ApplicationMessage,
    refusal: RetainRefused,
    origin: ChangeOrigin,
    retained: IRetainedMessages,
    counters: Counters,
    may_clear: bool = True,
) -> CommitTicket | None:
    """Count and log a message that is delivered, and see to it that no older message of its topic stays.

    Beyond the publish rate, the message waits until the rate allows to store it. Beyond other limits, the topic is
    cleared. Returns the ticket of this; None if the publisher may not clear the topic: then nobody may get the message.
    Called in the turn of the refusal.
    """
    if refusal.limit is Limit.PUBLISH_RATE:
        counters.retained_delayed += 1
        retained.refused(message, refusal, "so it is delivered, and stored later")
        return retained.retain_later(message, origin)
    if not may_clear:
        counters.retained_not_delivered += 1
        retained.refused(message, refusal, "nor clear the older message, so nobody gets it")
        return None

    def dropped() -> None:
        counters.retained_dropped_old += 1

    counters.retained_not_stored += 1
    retained.refused(message, refusal, "so it is delivered only, and an older message is cleared")
    return retained.drop(message, dropped)
