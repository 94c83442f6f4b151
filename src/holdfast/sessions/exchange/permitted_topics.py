"""What one Client may publish: the authorizer's answers, remembered as long as its epoch lasts.

So a message of a known topic costs one look into a dictionary, however many rules there are. Only permissions are
remembered: a Client that publishes what it may not has each of its messages judged, and its rate is limited elsewhere.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from holdfast.auth.interfaces import IAuthorizer, Principal

#: the most bytes that the remembered topics of one Client may occupy, and how many each takes beside its name
_MOST_BYTES = 64 * 1024
_ENTRY = 150


class PermittedTopics:
    """The topics that one Principal may publish to. ``epoch`` is that of the answers."""

    __slots__ = ("_authorizer", "_bytes", "_forms", "_principal", "epoch")

    def __init__(self, authorizer: IAuthorizer, principal: Principal) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self.epoch: object = None
        #: by topic: one bit for each permitted combination of QoS, RETAIN and an empty payload
        self._forms: dict[str, int] = {}
        self._bytes = 0

    def may_publish(self, topic: str, qos: int, retain: bool, clears: bool) -> bool | Deferred[bool]:
        """Tell whether the Principal may publish this; the arguments are those of the authorizer."""
        form = 1 << (qos << 2 | retain << 1 | clears)
        authorizer = self._authorizer
        epoch = authorizer.epoch
        if epoch == self.epoch:
            forms = self._forms.get(topic, 0)
            if forms & form:
                return True
        else:
            self._forget(epoch)
        answer = authorizer.may_publish(self._principal, topic, qos, retain, clears)
        if answer is True and epoch is not None:
            self._remember(topic, form)
        return answer

    def _remember(self, topic: str, form: int) -> None:
        size = len(topic) + _ENTRY
        known = self._forms.get(topic, 0)
        if not known:
            if self._bytes + size > _MOST_BYTES:
                self._forget(self.epoch)
            self._bytes += size
        self._forms[topic] = known | form

    def _forget(self, epoch: object) -> None:
        self.epoch = epoch
        self._forms.clear()
        self._bytes = 0
