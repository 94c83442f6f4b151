"""How live messages and replays share the window: the QoS 1 and 2 messages that may be unacknowledged.

Their number is limited, and the bytes that they hold (:mod:`holdfast.sizes`).

How it works. The window of a Session has one size: the lesser of the Client's Receive Maximum and
``mqtt.max_inflight``. All messages in flight count against it. While a replay runs, live messages and replays each
have half of it:

    size 10, a replay runs    live messages get at most 5; the replay gets at most 5 while live messages wait,
                              and up to 10 while none waits
    size 10, no replay runs   live messages get all 10
    size 7, a replay runs     live messages get at most 4, the larger half
    size 1, a replay runs     no half exists: live messages and replays take turns

So a replay cannot delay live messages behind thousands of retained messages, and a fast publisher cannot stop a
replay. A replay uses the whole window when no live message waits, since live messages could not use it; a live message
that comes then waits for one acknowledgement. Live messages do not use the replay's half even if the replay is slow:
the replay asks for room only when it has read a batch, and would find none.

The bytes, at most ``mqtt.max_inflight_bytes``, are shared in the same way. One message is always sent, of any length;
while a replay runs, one live and one replayed message are. So both always go on:

    1 MB, no replay runs      ten messages of 100 KB, or one of 2 MB
    1 MB, a replay runs       five live messages of 100 KB, or one of 2 MB; and at least one replayed message

A message that the Client has received (PUBREC) counts as a message, and its bytes are free.

A replay begins to share the window when all messages queued before it have been sent. ``replaying`` tells whether any
replay of the Session shares the window.
"""

from __future__ import annotations


class Window:
    """The window of one Session. ``size`` is in messages, ``max_bytes`` in bytes.

    ``bytes`` counts the bytes in flight. ``replayed`` and ``replayed_bytes`` count the messages of replays in flight.
    """

    __slots__ = ("_last_was_replay", "bytes", "max_bytes", "replayed", "replayed_bytes", "replaying", "size")

    def __init__(self, size: int, max_bytes: int) -> None:
        self.size = size
        self.max_bytes = max_bytes
        self.replaying = False
        self.bytes = 0
        self.replayed = 0
        self.replayed_bytes = 0
        self._last_was_replay = True

    def live_room(self, in_flight: int) -> int:
        """Return how many live QoS 1 and 2 messages may be sent now; ``in_flight`` includes replayed messages."""
        size = self.size
        room = size - in_flight
        if self.replaying and size > 1:
            room = min(room, size - size // 2 - (in_flight - self.replayed))
        return room

    def takes_live(self, in_flight: int, size: int) -> bool:
        """Tell whether a live QoS 1 or 2 message of ``size`` bytes may be sent now."""
        if not self.replaying:  # the usual case
            return in_flight < self.size and (self.bytes + size <= self.max_bytes or not self.bytes)
        if self.live_room(in_flight) <= 0:
            return False
        live = self.bytes - self.replayed_bytes
        if not live:
            return True
        return self.bytes + size <= self.max_bytes and live + size <= (self.max_bytes + 1) // 2

    def takes_run(self, in_flight: int, count: int, size: int) -> bool:
        """Tell whether ``count`` live QoS 1 messages of ``size`` bytes together may be sent now."""
        if not self.replaying:  # the usual case
            return in_flight + count <= self.size and self.bytes + size <= self.max_bytes
        live = self.bytes - self.replayed_bytes + size
        if self.bytes + size > self.max_bytes or live > (self.max_bytes + 1) // 2:
            return False
        return count <= self.live_room(in_flight)

    def replay_bytes(self, live_waits: bool) -> int:
        """Return how many bytes of QoS 1 and 2 messages replays may send now.

        If ``replayed_bytes`` is 0, they may send one message of any size.
        """
        room = self.max_bytes - self.bytes
        if live_waits:
            room = min(room, self.max_bytes // 2 - self.replayed_bytes)
        return room

    def replay_room(self, in_flight: int, live_waits: bool) -> int:
        """Return how many QoS 1 and 2 messages replays may send now."""
        room = self.size - in_flight
        if live_waits:
            room = min(room, max(1, self.size // 2) - self.replayed)
        if self.replayed_bytes and self.replay_bytes(live_waits) <= 0:
            return 0
        return room

    def is_turn_of_replays(self) -> bool:
        """Tell whether a replay, not a live message, may use a window of one. Each call passes the turn on."""
        if self.size > 1 or not self.replaying or self.replayed:
            return False
        self._last_was_replay = not self._last_was_replay
        return self._last_was_replay
