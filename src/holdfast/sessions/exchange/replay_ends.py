"""Which markers a SUBSCRIBE asks for, and which Subscription of the Client carries them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Protocol

from holdfast.extensions.names import REPLAY_END as PROPERTY
from holdfast.scheduling.long_work import COMPARED_PER_STEP, Meter, weight_of_comparison
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.pending_marker import PendingMarker
from holdfast.topics import REPLAY_END, SHARED_PREFIX, matching


class IGranted(Protocol):
    """A Subscription that is granted, or about to be."""

    @property
    def filtered(self) -> bool:
        """Whether the authorizer is asked about each topic."""


class ReplayEnds:
    """The markers of one SUBSCRIBE.

    ``topic`` is the Topic Name that it asks for, None for none. A Subscription to ``$replay/end`` asks for markers
    there. A marker is sent only where a Subscription of the Client matches [MQTT5-3.3.2-3]: its *carrier*. One that the
    authorizer judges by topic (filtered) is no carrier, unless it names the topic.
    """

    def __init__(self, topic: str | None, session: Session) -> None:
        self._topic = topic
        self._session = session
        self._carrier: str | None = None
        self.note = ""  #: for the Reason String

    def find_carrier(self, granted: Mapping[str, IGranted | None]) -> Iterator[int]:
        """Find the carrier, in steps, among the present Subscriptions and those that are ``granted`` now.

        ``granted`` has None for Topic Filters that are refused.
        """
        subscriptions = self._session.subscriptions
        if self._topic is not None:
            if granted.get(self._topic) is not None or self._topic in subscriptions:
                self._carrier = self._topic
            else:
                yield from self._search(self._topic, granted)
            if self._carrier is None:
                self.note = f"no marker: no subscription matches the topic in {PROPERTY}"
        if self._carrier is None and (REPLAY_END in granted or REPLAY_END in subscriptions):
            self._topic = self._carrier = REPLAY_END

    def marker(self, key: str, replayed: bool) -> PendingMarker | None:
        """Return the marker for a Subscription, None if none is asked for."""
        if self._topic is None or self._carrier is None or key == REPLAY_END:
            return None
        return PendingMarker(self._topic, self._carrier, replayed)

    def _search(self, topic: str, granted: Mapping[str, IGranted | None]) -> Iterator[int]:
        present = tuple(self._session.subscriptions.items())
        is_match, meter = matching(topic), Meter(COMPARED_PER_STEP)
        for key, found in chain(((key, granted.get(key) or before) for key, before in present), granted.items()):
            due = meter.add(weight_of_comparison(key))
            if due:
                yield due
            if found is None or found.filtered or key.startswith(SHARED_PREFIX):
                continue
            if is_match(key):
                self._carrier = key
                return
