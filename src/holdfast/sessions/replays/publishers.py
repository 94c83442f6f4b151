"""Who is told the publishers of retained messages."""

from __future__ import annotations

from holdfast.auth.interfaces import Grant, IAuthorizer, Principal
from holdfast.sessions.limits import Limits
from holdfast.topics import PUBLISHERS


def tells_publishers(authorizer: IAuthorizer, principal: Principal, limits: Limits, topic_filter: str) -> bool:
    """Tell whether a Principal may know the publishers of all messages that a Topic Filter matches."""
    if not limits.tell_publishers:
        return False
    grant: Grant = authorizer.receivable(principal, PUBLISHERS + topic_filter)
    return grant is Grant.GRANTED
