"""The marker that a Client is sent after a replay, as long as it is due: what it will tell, and how it is stored.

It belongs to the position of the replay (:mod:`holdfast.sessions.delivery.replay_positions`), so it is Session State.
"""

from __future__ import annotations

import json

from attrs import define, field

#: in ``left_out``: messages above the Client's Maximum Packet Size
TOO_LARGE = "too large"
#: in ``left_out``: the Client may not receive every message that the Topic Filter matches
NOT_AUTHORIZED = "not authorized"
#: in ``left_out``: the history does not have the time of the replay any more, or does not know some topics then
NO_HISTORY = "no history"
#: in ``left_out``: nobody has noted what the replay left out before the marker was asked for
ASKED_LATE = "asked for during the replay"
#: in ``left_out``: changes since the token are not kept any more
NOT_KEPT = "changes not kept"
#: why the marker of a Subscription without a replay tells no complete state
NOT_REPLAYED = "not replayed"


@define(eq=False)
class PendingMarker:
    """A marker that is due.

    ``topic`` is its Topic Name, and ``carrier`` the Subscription of the Client that matches it, by the Topic Filter of
    its SUBSCRIBE. ``replayed`` is false for a Subscription without a replay. ``count`` and ``size`` (bytes) are of the
    messages sent so far, with repeats if the replay was ``resumed``. ``left_out`` has the reasons why messages were
    left out. ``token`` is for the next request of changes, None for none. ``since`` is "full" or "delta" where changes
    since a token were asked for, else "".
    """

    topic: str
    carrier: str
    replayed: bool = True
    resumed: bool = False
    count: int = 0
    size: int = 0
    left_out: set[str] = field(factory=set)
    token: str | None = None
    since: str = ""

    def sent(self, count: int, size: int) -> None:
        """Note messages of the replay, with the bytes of their packets."""
        self.count += count
        self.size += size

    def take_over(self, earlier: PendingMarker) -> None:
        """Tell what another marker of the same replay would have told: this one takes its place."""
        self.replayed, self.resumed = earlier.replayed, earlier.resumed
        self.count, self.size = earlier.count, earlier.size
        self.left_out = earlier.left_out

    def anew(self, *, replayed: bool, token: str | None, since: str) -> PendingMarker:
        """Return this marker for another replay, which begins now and takes the place of its own.

        The arguments tell of that replay what the fields tell. If it has no token, the earlier one is as good: replays
        since that token bring more.
        """
        return PendingMarker(self.topic, self.carrier, replayed, token=token or self.token, since=since)

    def payload(self, topic_filter: str, at: str) -> bytes:
        """Return the payload for a Topic Filter, at a time in ISO 8601."""
        fields: dict[str, object] = {
            "filter": topic_filter,
            "count": self.count,
            "bytes": self.size,
            "token": None if NOT_KEPT in self.left_out else self.token,
            "at": at,
            "replayed": self.replayed,
            "resumed": self.resumed,
            "complete": self.replayed and not self.left_out,
        }
        if self.since:
            fields["since"] = self.since
        reasons = sorted(self.left_out) if self.replayed else [NOT_REPLAYED]
        if reasons:
            fields["why"] = ", ".join(reasons)
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    def text(self) -> str:
        """Return the marker for its row."""
        fields = (
            self.topic, self.carrier, self.replayed, self.resumed, self.count, self.size, sorted(self.left_out),
            self.token, self.since,
        )  # fmt: skip
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def marker_of(text: str) -> PendingMarker:
    """Return the marker of a row. A replay that is restored was interrupted."""
    topic, carrier, replayed, _, count, size, left_out, *later = json.loads(text)
    return PendingMarker(topic, carrier, replayed, True, count, size, set(left_out), *later)
