"""The deadline of calls, and the end of a call that misses it.

How it works. A call has 10 seconds, or N seconds with ``Prefer: wait=N`` (RFC 7240), 60 at most. Mostly the database is
the cause of a late answer: it is away, or another program has locked it.

    a read that is late                     is cancelled: 503
    the first piece of a long answer        the same
    a later piece                           the answer breaks off
    a change that is late                   goes on as a job: 202
    a change of the database, which is      is refused at once, and nothing is changed: 503
    known to be away

A change that the writer has got is stored when the database is back, so no answer may say that it failed. The job tells
the outcome: the status, and the note for the audit log. It does not have the content of the answer, which may be the
secret of a new key. A caller that leaves before the deadline ends its call as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.call import Answer, Call, RefusedCall, database_away, title_of, unavailable
from holdfast.admin.jobs import Jobs, accepted
from holdfast.admin.routing import Route
from holdfast.scheduling.waiting import as_deferred

#: the kind of the jobs that late changes become
LATE_CALL = "call"
#: characters of the path in the description of such a job
_MOST_ABOUT = 200


@frozen
class Deadlines:
    """Gives calls their deadlines. ``is_away`` tells whether the database is known to be away."""

    clock: IReactorTime
    jobs: Jobs
    is_away: Callable[[], bool]

    def run(self, route: Route, call: Call, work: Callable[[], Deferred[Answer]]) -> Deferred[Answer]:
        """Begin the work of a call, and return its answer, in time. Raises RefusedCall if the work may not begin."""
        changes = call.method not in ("GET", "HEAD")
        if changes and route.stores:
            if self.is_away():
                raise database_away()
            if self.jobs.is_full:
                raise unavailable("too many changes wait for the database already; try it again later")
        if changes:
            return self._change(route, call, work) if route.has_deadline else work()
        reading = work().addCallback(self._begun, call) if route.has_deadline else work()
        return reading.addTimeout(call.patience, self.clock, lambda _failure, _seconds: self._late(call))

    def _late(self, call: Call) -> Failure:
        """Return the refusal of a read that is late."""
        cause = "the database is away" if self.is_away() else "the call needs longer: Prefer: wait=N gives it N seconds"
        return Failure(unavailable(f"there is no answer after {call.patience} seconds; {cause}"))

    @as_deferred
    async def _begun(self, answer: Answer, call: Call) -> Answer:
        """Return an answer whose first piece is there, so that a refusal can take its place until then."""
        more = answer.more
        if more is None or call.method == "HEAD":
            return answer
        try:
            pieces = [(await more())]
        except BaseException:
            if answer.stopped is not None:
                answer.stopped()
            raise

        def following() -> Deferred[bytes]:
            if pieces:
                return succeed(pieces.pop())
            return more().addTimeout(call.patience, self.clock, lambda _failure, _seconds: self._late(call))

        return evolve(answer, more=following)

    def _change(self, route: Route, call: Call, work: Callable[[], Deferred[Answer]]) -> Deferred[Answer]:
        doing = work()

        def cancel(_cancelled: Deferred[Any]) -> None:
            doing.cancel()

        answering: Deferred[Answer] = Deferred(cancel)
        outcome: Deferred[Answer] = Deferred(None if route.finishes else cancel)
        waiting = answering

        def late() -> None:
            nonlocal waiting
            if answering.called:  # the caller has left
                return
            waiting = outcome
            about, telling = f"{call.method} {call.path}"[:_MOST_ABOUT], outcome.addCallback(_told)
            answering.callback(accepted(self.jobs.adopt(LATE_CALL, str(call.caller), telling, about, route.refusals)))

        deadline = self.clock.callLater(call.patience, late)

        def done(result: Answer | Failure) -> None:
            if deadline.active():
                deadline.cancel()
            if not waiting.called:  # else it was cancelled
                waiting.callback(result)

        doing.addBoth(done)
        return answering


def _told(answer: Answer) -> dict[str, object]:
    """Return the outcome of a late change. Raises RefusedCall if the change was refused."""
    if answer.status >= http.BAD_REQUEST:
        raise RefusedCall(answer.status, "", title_of(answer.status))
    return {"status": answer.status, **answer.note}
