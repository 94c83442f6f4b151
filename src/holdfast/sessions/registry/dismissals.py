"""Ends the connections of Clients whose identity has ended: it has expired, or an operator has removed it.

How it works. A dismissal walks through the connected Clients in portions, and closes the connections of those that it
names. A Client whose CONNECT is still being judged is not among them: its credentials may have been found right just
before its user was removed. So an admission notes the number of dismissals at its beginning (``count``), and asks at
its end whether a later one names its Client (:meth:`Dismissals.refusal`). An example:

    CONNECT of alice; her password is being verified    count is 7
    alice is removed: nobody is connected as alice      count is 8
    the password was right                              dismissal 8 names alice: CONNECT is refused

The time at which an identity ends (``expires_at`` of a Principal) is a deadline of its Client. Clients without such a
time cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.auth.interfaces import Principal
from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.session.session import Session
from holdfast.terminal_text import counted
from holdfast.wire import ReasonCode

#: Clients that are looked at in one step, if none of them is dismissed
_LOOKS_PER_STEP = 100
#: the dismissals that an admission is compared with; one that lasts through more of them is refused
_REMEMBERED = 64
#: seconds until a connected Client is dismissed whose identity has expired
_SOON = 0.1

#: tells whether a Principal is dismissed
Matching = Callable[[Principal], bool]


@frozen
class Dismissal:
    """Which Clients are dismissed, the Reason Code for them, and a clause for the log and for the Clients."""

    matching: Matching
    reason: ReasonCode
    explanation: str


_EXPIRED = Dismissal(lambda _: True, ReasonCode.NOT_AUTHORIZED, "the identity has expired")
_OUTRUN = Dismissal(lambda _: True, ReasonCode.SERVER_BUSY, "too many identities were ended meanwhile")


class Dismissals:
    """Dismisses connected Clients of the registry, whose links and Sessions by Client Identifier it looks at."""

    _log = Logger()

    def __init__(
        self,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        work: LongWork,
        links: Mapping[str, IClientLink],
        sessions: Mapping[str, Session],
    ) -> None:
        self._now = now
        self._work = work
        self._links = links
        self._sessions = sessions
        self._ends = Deadlines("the end of identities", clock, work, self._expired)
        self._latest: deque[Dismissal] = deque(maxlen=_REMEMBERED)
        #: how many dismissals there have been
        self.count = 0

    def dismiss(self, matching: Matching, reason: ReasonCode, explanation: str) -> Deferred[int]:
        """Disconnect the connected Clients that match, in portions. Fires with their number.

        Each gets DISCONNECT where its protocol version has it, and its Will is published: the Client has not sent
        DISCONNECT [MQTT5-3.1.2-8]. Their Sessions stay. A Client for which ``matching`` fails is disconnected too.
        """
        dismissal = Dismissal(matching, reason, explanation)
        self.count += 1
        self._latest.append(dismissal)
        dismissed: list[str] = []
        done = self._work.do(self, self._walk(dismissal, dismissed)) or succeed(None)
        return done.addCallback(lambda _: self._dismissed(len(dismissed), explanation))

    def refusal(self, principal: Principal, count: int) -> Dismissal | None:
        """Return why a Client that is being admitted since the first ``count`` dismissals is refused; None: it is not.

        Its identity has expired, or a later dismissal names it. If more came than are remembered, it has to try again.
        """
        if principal.expires_at is not None and principal.expires_at <= self._now() / 1000:
            return _EXPIRED
        missed = self.count - count
        if missed > len(self._latest):
            return _OUTRUN
        latest = islice(reversed(self._latest), missed)
        return next((dismissal for dismissal in latest if dismissal.matching(principal)), None)

    def attached(self, principal: Principal) -> None:
        """Disconnect this Client when its identity ends, instead of any earlier time."""
        if principal.expires_at is None:
            self.left(principal.client_id)
        else:
            delay = principal.expires_at - self._now() / 1000
            self._ends.set(principal.client_id, max(delay, _SOON))  # never at once: the caller is not done

    def left(self, client_id: str) -> None:
        """Forget the time at which the identity of a Client ends: it is not connected any more."""
        if self._ends:
            self._ends.discard(client_id)

    def stop(self) -> None:
        """Disconnect no Client any more because of its time."""
        self._ends.stop()

    def _walk(self, dismissal: Dismissal, dismissed: list[str]) -> Iterator[int]:
        for number, client_id in enumerate(list(self._links)):
            if not number % _LOOKS_PER_STEP:
                yield 1
            link, session = self._links.get(client_id), self._sessions.get(client_id)
            if link is None or session is None:  # gone since the walk began
                continue
            with link.guard:
                if dismissal.matching(session.principal):
                    yield 1
                    dismissed.append(client_id)
                    link.close(dismissal.reason, dismissal.explanation)

    def _dismissed(self, count: int, explanation: str) -> int:
        if count:
            self._log.info(
                "disconnected {clients}: {explanation}",
                clients=counted(count, "client"), count=count, explanation=explanation,
            )  # fmt: skip
        return count

    def _expired(self, client_id: str) -> Iterator[int]:
        link = self._links.get(client_id)
        if link is not None:
            with link.guard:
                link.close(_EXPIRED.reason, _EXPIRED.explanation)
        yield from ()
