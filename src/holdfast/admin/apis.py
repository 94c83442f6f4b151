"""Several APIs at one place: each call goes to the one whose prefix its path has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast.admin.calls import Answer, Call, not_found


class API(Protocol):
    """Answers the calls below one prefix."""

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer a call. The Deferred fails only with CancelledError, if the caller cancels it."""


#: is told of each answered call that may change something
Witness = Callable[[Call, Answer], None]


#: The status that is told of a call whose caller left before its answer. What it had begun may be done.
UNANSWERED = 499


def _tell_nobody(_call: Call, _answer: Answer) -> None:
    """Tell nobody."""


class APIs:
    """The APIs by their prefixes.

    The ``witness`` is told of every call but GET, with its answer. A caller that leaves is told of, too: else whoever
    hangs up could hide a change.

    Calls of the APIs with the prefixes ``finished`` are never cancelled: a change that has begun is finished, also in
    memory, if the caller has gone.
    """

    def __init__(
        self, apis: Mapping[str, API], witness: Witness = _tell_nobody, finished: Collection[str] = ()
    ) -> None:
        self._apis = apis
        self._witness = witness
        self._finished = finished

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer any call."""
        for prefix, api in self._apis.items():
            if call.path == prefix or call.path.startswith(f"{prefix}/"):
                answering = api.answer(call)
                if call.method not in ("GET", "HEAD"):
                    answering.addCallbacks(self._told, self._unanswered, callbackArgs=(call,), errbackArgs=(call,))
                return _uncancelled(answering) if prefix in self._finished else answering
        return succeed(not_found("there is no such path").answer())

    def _told(self, answer: Answer, call: Call) -> Answer:
        self._witness(call, answer)
        return answer

    def _unanswered(self, failure: Failure, call: Call) -> Failure:
        self._witness(call, Answer(UNANSWERED))
        return failure


def _uncancelled(work: Deferred[Answer]) -> Deferred[Answer]:
    """Return a Deferred with the result of the work, which goes on if this Deferred is cancelled."""
    answer: Deferred[Answer] = Deferred()

    def done(result: Any) -> None:
        if not answer.called:  # else it has been cancelled
            answer.callback(result)

    work.addBoth(done)
    return answer
