"""The API about retained messages: finds the handler of a call, and turns failures into refusals.

Paths and shapes are those of EMQX, with more fields.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.address import API_PREFIX
from holdfast.admin.arguments import decoded
from holdfast.admin.calls import Answer, Call, RefusedCall, Routes, answer, bad_request, not_found
from holdfast.admin.history import HistoryCalls
from holdfast.admin.merging import MergeCalls
from holdfast.admin.messages import MessageCalls
from holdfast.admin.replays import ReplayCalls
from holdfast.admin.settings import Settings
from holdfast.retained.administration import Administration
from holdfast.retained.fields import BadRecord
from holdfast.retained.history.history import IRetainedHistory
from holdfast.retained.history.moments import HistoryUnavailable
from holdfast.retained.history.restoring import Restorer
from holdfast.retained.importing.merging import Merger
from holdfast.retained.quota.limits import NotRetained
from holdfast.retained.service import RetainedMessages
from holdfast.tickets import FailureKind, StorageFailure

#: paths whose last segment may be an argument, and the name of that argument
_LAST_SEGMENT = {"/message": "topic", "/replay": "id"}


class RetainerAPI:
    """Answers calls about retained messages.

    ``store`` names the database. ``health`` returns its ``damage`` (None if there is none) and its ``quarantined``
    files. Without a ``merger``, there is no call to merge staged messages.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        administration: Administration,
        retained: RetainedMessages,
        history: IRetainedHistory,
        restorer: Restorer,
        settings: Settings,
        store: str,
        health: Callable[[], Mapping[str, object]] = dict,
        merger: Merger | None = None,
    ) -> None:
        self.settings = settings
        self._administration = administration
        self._merger = merger
        self._store = store
        self._health = health
        self._routes: Routes = {
            **ReplayCalls(retained, settings).routes,
            "/info": {"GET": (self.info, ())},
            **MessageCalls(administration, history).routes,
            **HistoryCalls(history, restorer, administration.now, administration.pause).routes,
            **(MergeCalls(merger).routes if merger is not None else {}),
        }

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer any call. The Deferred fails only with CancelledError, if the caller cancels it."""
        return maybeDeferred(self._answer, call).addErrback(self._failed)

    def _answer(self, call: Call) -> Deferred[Answer]:
        if not call.path.startswith(API_PREFIX):
            raise not_found("there is no such path")
        path = call.path[len(API_PREFIX) :]
        for start, name in _LAST_SEGMENT.items():
            if path.startswith(f"{start}/"):
                arguments = {**call.arguments, name: decoded(path.removeprefix(f"{start}/"))}
                call = evolve(call, path=path, arguments=arguments)
                path = start
                break
        methods = self._routes.get(path)
        if methods is None:
            raise not_found("there is no such path")
        known = methods.get(call.method)
        if known is None:
            allowed = ", ".join(methods)
            raise RefusedCall(http.NOT_ALLOWED, "METHOD_NOT_ALLOWED", f"allowed here: {allowed}", (("Allow", allowed),))
        handler, names = known
        for name in call.arguments:
            if name not in names:
                raise bad_request(f"there is no argument {name[:40]!a} here; there are: {', '.join(names) or 'none'}")
        return handler(call)

    def _failed(self, failure: Failure) -> Answer:
        error = failure.value
        if isinstance(error, RefusedCall):
            return error.answer()
        if isinstance(error, BadRecord):
            return bad_request(str(error)).answer()
        if isinstance(error, NotRetained):
            return RefusedCall(http.BAD_REQUEST, "EXCEED_LIMIT", str(error)).answer()
        if isinstance(error, HistoryUnavailable):
            return RefusedCall(http.BAD_REQUEST, "HISTORY_UNAVAILABLE", str(error)).answer()
        if isinstance(error, StorageFailure):
            if error.kind is FailureKind.REFUSED:
                return bad_request(str(error)).answer()
            return RefusedCall(http.SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", str(error)).answer()
        failure.trap(Exception)  # let SystemExit and KeyboardInterrupt pass
        if failure.check("twisted.internet.defer.CancelledError"):
            failure.raiseException()
        self._log.failure("a call failed", failure)
        return RefusedCall(
            http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "this is a fault of the broker; see its log"
        ).answer()

    @inlineCallbacks
    def info(self, _call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Answer with the number and size of retained messages, and the changes made through the API."""
        administration = self._administration
        statistics = yield administration.statistics()
        content: dict[str, Any] = {
            "count": statistics.count,
            "bytes": statistics.bytes,
            "replays": administration.replay_count,
            "node": administration.node,
            "store": self._store,
            "available": administration.available,
            **self._health(),
            "api": {**administration.counts, "imported": 0 if self._merger is None else self._merger.imported},
        }
        return answer(content)
