"""An errand: work for the writer's thread that is not a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from holdfast.storage.driver import WritableDatabase
from holdfast.storage.writing.groups import CommitGroup
from holdfast.tickets import FailureKind


class Errand(CommitGroup):
    """Other work for the writer's thread. It has no writes; its tickets wait for it to be over."""

    __slots__ = ("answer", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(0.0)
        self.work = work
        self.answer: Deferred[Any] = Deferred()

    def answer_with(self, outcome: Any, database: WritableDatabase) -> None:
        """Give the outcome, a result or an exception, to whoever has sent the errand."""
        if not isinstance(outcome, BaseException):
            self.answer.callback(outcome)
            return
        failure = database.failure(outcome)
        self.answer.errback(outcome if failure.kind is FailureKind.REFUSED else failure)
