"""The call that reloads the configuration: ``POST /api/v5/reload``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.calls import Answer, Call, RefusedCall, answer, not_found

RELOAD_PATH = "/api/v5/reload"


class Outcome(Protocol):
    """What a reload has done."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the answer."""


class ReloadAPI:
    """Reloads the configuration. ``reload`` takes who wants it."""

    def __init__(self, reload: Callable[[str], Deferred[Any]]) -> None:
        self._reload = reload

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer any call: 200 with what was done, 400 with the problems if nothing was changed."""
        if call.path != RELOAD_PATH:
            return succeed(not_found("there is no such path").answer())
        if call.method != "POST":
            refused = RefusedCall(http.NOT_ALLOWED, "METHOD_NOT_ALLOWED", "allowed here: POST", (("Allow", "POST"),))
            return succeed(refused.answer())
        # The caller may go; the reload goes on.
        answering: Deferred[Answer] = Deferred()
        self._reload(str(call.operator)).addCallbacks(_done, _failed).addCallback(_tell, answering)
        return answering


def _tell(result: Answer, answering: Deferred[Answer]) -> None:
    if not answering.called:
        answering.callback(result)


def _done(outcome: Outcome) -> Answer:
    content = outcome.as_json()
    problems, status = len(content["problems"]), http.OK
    if problems:
        status = http.BAD_REQUEST
        content = {"code": "UPDATE_FAILED", "message": f"nothing was changed: {problems} problems", **content}
    note: Mapping[str, object] = {
        "changed": [each["key"] for each in content["changed"]],
        "files": content["files"],
        "problems": problems,
    }
    return answer(content, status, note=note)


def _failed(failure: Failure) -> Answer:
    failure.trap(Exception)
    return RefusedCall(
        http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "the reload has failed or the broker stops; see its log"
    ).answer()
