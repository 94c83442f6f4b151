"""The call that reloads the configuration: ``POST /api/v5/reload``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.call import Answer, Call, answer
from holdfast.admin.calls.problems import RefusedCall
from holdfast.admin.routing.route import Content, Route
from holdfast.admin.routing.schemas import ANYTHING, array, record
from holdfast.terminal_text import counted

RELOAD_PATH = "/api/v5/reload"
_OUTCOME = record(
    {"changed": array({"type": "object"}), "files": ANYTHING, "problems": array(ANYTHING), "warnings": ANYTHING}
)


class Outcome(Protocol):
    """The outcome of a reload."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the answer."""


class ReloadAPI:
    """Reloads the configuration. ``reload`` takes the name of the operator."""

    def __init__(self, reload: Callable[[str], Deferred[Any]]) -> None:
        self._reload = reload
        self.routes = (
            Route(
                method="POST",
                path=RELOAD_PATH,
                handler=self.reload,
                scope=Scope.ADMIN,
                summary="Reload the configuration; if it has problems, change nothing",
                answers={200: Content(_OUTCOME, "what was changed")},
                finishes=True,
            ),
        )

    def reload(self, call: Call) -> Deferred[Answer]:
        """Answer with the changes, or refuse with the problems if nothing was changed."""
        return self._reload(str(call.caller)).addCallbacks(_done, _failed)


def _done(outcome: Outcome) -> Answer:
    content = outcome.as_json()
    problems = len(content["problems"])
    note: Mapping[str, object] = {
        "changed": [each["key"] for each in content["changed"]],
        "files": content["files"],
        "problems": problems,
        **({"warnings": content["warnings"]} if content["warnings"] else {}),
    }
    if not problems:
        return answer(content, note=note)
    refused = RefusedCall(
        http.BAD_REQUEST, "UPDATE_FAILED", f"nothing was changed: {counted(problems, 'problem')}", more=content
    ).answer()
    return evolve(refused, note=note)


def _failed(failure: Failure) -> Answer:
    failure.trap(Exception)
    return RefusedCall(
        http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "the reload has failed or the broker stops; see its log"
    ).answer()
