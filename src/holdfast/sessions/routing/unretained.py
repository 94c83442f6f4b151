"""Messages that are delivered but over a limit of the retainer, from Clients or as Wills."""

from __future__ import annotations

from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.quota.limits import OnLimit, RetainRefused
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.tickets import COMMITTED, CommitTicket


def not_retained(
    message: ApplicationMessage,
    refusal: RetainRefused,
    origin: ChangeOrigin,
    retained: IRetainedMessages,
    counters: Counters,
) -> CommitTicket:
    """Count and log a message that is only delivered. Clears the topic's older message if the policy says so.

    Returns the ticket of the clear.
    """
    counters.retained_not_stored += 1
    if retained.on_limit is not OnLimit.DROP_OLD:
        retained.refused(message, refusal, "so it is delivered only, and an older message stays")
        return COMMITTED
    retained.refused(message, refusal, "so it is delivered only, and an older message is cleared")
    ticket, dropped = retained.drop(message, origin)
    counters.retained_dropped_old += dropped
    return ticket
