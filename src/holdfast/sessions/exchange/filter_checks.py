"""The checks of a Topic Filter in SUBSCRIBE and UNSUBSCRIBE: is it well formed, and do the limits allow it?"""

from __future__ import annotations

from holdfast.sessions.connection.client_link import IClientLink
from holdfast.topics import (
    InvalidShare,
    InvalidTopicFilter,
    TooManyLevels,
    check_topic_filter,
    has_wildcard,
    split_shared,
)
from holdfast.wire import ProtocolError, ReasonCode
from holdfast.wire.packets import SubscriptionRequest

#: the weight of the Topic Filters that are checked in one step of long work (:class:`Meter`)
CHECKS_PER_STEP = 8
#: so many characters of a Topic Filter count as one more check
_CHARACTERS = 1024


def weight_of_check(topic_filter: str) -> int:
    """Return for how many checks a Topic Filter counts: they look at all its characters."""
    return 1 + len(topic_filter) // _CHARACTERS


class TopicFilterChecks:
    """Checks the Topic Filters of one Client."""

    def __init__(self, link: IClientLink) -> None:
        self._limits = link.limits
        self._v5 = link.protocol_version == 5

    def parsed(self, text: str) -> tuple[str | None, str] | None:
        """Return ShareName and Topic Filter. None: the filter is well formed, but not accepted here.

        A filter that is not well formed ends the connection [MQTT5-4.7.1-1], [MQTT5-4.7.1-2], [MQTT311-4.8.0-1].
        """
        try:
            group, topic_filter = split_shared(text)
            check_topic_filter(topic_filter, self._limits.max_topic_levels)
        except TooManyLevels:
            return None
        except InvalidTopicFilter as wrong:
            if isinstance(wrong, InvalidShare) and not self._v5:  # MQTT 3 knows no shares: a filter like any other
                return None
            raise ProtocolError(str(wrong)) from None
        return group, topic_filter

    def refusal(self, request: SubscriptionRequest) -> ReasonCode | None:
        """Return why the limits forbid the subscription, or None."""
        limits = self._limits
        parsed = self.parsed(request.topic_filter)
        if parsed is None:
            return ReasonCode.TOPIC_FILTER_INVALID
        group, topic_filter = parsed
        if group is not None and not limits.shared_subscription:
            return self._not_offered("shared subscriptions", ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
        if not limits.wildcard_subscription and has_wildcard(topic_filter):
            return self._not_offered("wildcards", ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
        return None

    def _not_offered(self, feature: str, reason: ReasonCode) -> ReasonCode:
        """Refuse a feature that CONNACK has declared unavailable: in MQTT 5 a Protocol Error [MQTT5-3.2.2.3.11], 13."""
        if self._v5:
            raise ProtocolError(f"{feature} are not offered here", reason)
        return reason
