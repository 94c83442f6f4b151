"""The lease of a member, without I/O: whether it may serve its clients now.

How it works. The database keeps until when the lease of a member lasts, by its own clock. The member knows only when it
has sent a renewal, by a clock that counts while the process is stopped and the machine sleeps. The renewal arrives
after it was sent, so the member's lease lasts no longer than the database's:

    12:00:00.0  sent                        the deadline becomes 12:00:05.0: the lease of 6 s, less the margin of 1 s
    12:00:00.3  the database renews it      lasts until 12:00:06.3
    12:00:01.0  the process is stopped
    12:00:21.0  it goes on                  the deadline has passed: it may not serve before a new renewal is answered
    12:00:21.1  a renewal is sent           answered: nobody has taken over. Refused: another incarnation has begun.

The states, and what leaves them:

    MEMBER   serves. The deadline leads to WAITING, a refusal to FENCED.
    WAITING  serves nobody: it routes, acknowledges and delivers nothing. An answered renewal leads back to MEMBER. A
             refusal, the end of the grace, or the word of a peer that it reaches the database leads to FENCED.
    FENCED   final. Another incarnation of the node may have begun.

Invariant: while the state is MEMBER, nobody has taken over, since nobody does before the end of the database's lease.
The two clocks need not agree; they must run equally fast, within the margin.

A member that was late itself takes over from nobody for the time of one lease: after an outage of the database, all
leases have ended, and the other members need that time to renew theirs.

Left out: a state in which messages with QoS 0 flow while the database is away. What a member may do meanwhile would
have to be asked for each packet; in WAITING it reads none.
"""

from __future__ import annotations

from enum import Enum

#: seconds by which a member's lease ends sooner than the database's
MARGIN = 1.0


class State(Enum):
    """Whether a member may serve."""

    MEMBER = "member"
    WAITING = "waiting"
    FENCED = "fenced"


class Lease:
    """The lease of one incarnation. All times are seconds of one clock that never stops.

    It lasts ``length`` seconds from ``sent``, when its first renewal was sent, less ``margin``; then ``grace`` seconds
    may pass until it is lost for good.
    """

    def __init__(self, *, length: float, grace: float, sent: float, margin: float = MARGIN) -> None:
        self._length = length
        self._grace = grace
        self._margin = margin
        self._state = State.MEMBER
        self._sent: float | None = None
        self._troubled = float("-inf")  #: when this member was late last, or a renewal failed
        #: until when this member may serve
        self.deadline = sent + length - margin

    @property
    def is_asking(self) -> bool:
        """Whether a renewal is under way."""
        return self._sent is not None

    @property
    def ends(self) -> float:
        """Until when this member may wait for the database."""
        return self.deadline + self._grace

    def look(self, now: float) -> State:
        """Return the state at this time."""
        if self._state is not State.FENCED:
            if now < self.deadline:
                self._state = State.MEMBER
            else:
                self._troubled = now
                self._state = State.WAITING if now < self.ends else State.FENCED
        return self._state

    def sent(self, now: float) -> None:
        """Note that a renewal is about to be sent. One is under way at a time."""
        self._sent = now

    def answered(self, now: float, renewed: bool) -> State:
        """Note the answer of the database; not ``renewed``: another incarnation has begun."""
        self.look(now)
        sent, self._sent = self._sent, None
        if not renewed:
            self._state = State.FENCED
        elif sent is not None and self._state is not State.FENCED:
            self.deadline = max(self.deadline, sent + self._length - self._margin)
        return self.look(now)

    def failed(self, now: float) -> State:
        """Note that the database has not answered."""
        self._sent = None
        self._troubled = now
        return self.look(now)

    def peer_reaches(self, now: float) -> State:
        """Note the word of a peer that it reaches the database: whoever waits for it is cut off alone."""
        if self.look(now) is State.WAITING:
            self._state = State.FENCED
        return self._state

    def supersede(self) -> None:
        """Note that the writer has found another incarnation."""
        self._state = State.FENCED

    def may_take_over(self, now: float) -> bool:
        """Tell whether this member may take the place of others whose leases have ended."""
        return self.look(now) is State.MEMBER and now - self._troubled >= self._length
