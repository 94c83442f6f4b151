"""The time that an authenticator or an authorizer may take for one answer.

Later packets of the Client wait for the answer, and so does memory. An answer that never comes must not hold either for
ever.
"""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

T = TypeVar("T")

#: seconds after which an answer is not awaited any more
PATIENCE = 30.0


class NoAnswer(Exception):
    """An authenticator or an authorizer has not answered in time."""


def in_time(answer: Deferred[T], clock: IReactorTime) -> Deferred[T]:
    """Cancel this answer after :data:`PATIENCE` seconds: it fails with NoAnswer then. Returns the same Deferred."""
    return answer.addTimeout(PATIENCE, clock, _no_answer)


def _no_answer(_answer: Any, seconds: float) -> Failure:
    return Failure(NoAnswer(f"no answer within {seconds:g} s"))
