"""The calls of orchestrators and load balancers: ``GET /healthz``, ``GET /readyz``, and EMQX's ``GET /status``."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.call import Answer, Call, answer
from holdfast.admin.routing.route import Content, Route
from holdfast.admin.routing.schemas import STRING, one_of, record

HEALTH_PATH, READY_PATH = "/healthz", "/readyz"
STATUS_PATHS = ("/status", "/api/v5/status")
_TEXT = "text/plain; charset=utf-8"

_HEALTH = record({"status": one_of("ok", "failing"), "checks": {"type": "object"}})
_ANSWERS = {200: Content(_HEALTH, "all checks are good"), 503: Content(_HEALTH, "a check fails, and says why")}


class Health(Protocol):
    """The results of the checks."""

    @property
    def is_good(self) -> bool:
        """Whether no check fails."""

    def content(self) -> dict[str, Any]:
        """Return them for an answer."""


class Checks(Protocol):
    """Makes the checks."""

    def alive(self) -> Health:
        """Tell whether the reactor turns."""

    def ready(self) -> Health:
        """Tell whether clients can be served."""


class HealthAPI:
    """Answers with the results of the checks, with status 503 if one fails."""

    def __init__(self, checks: Checks, node: str) -> None:
        self._checks = checks
        self._node = node
        self.routes = (
            Route(
                method="GET", path=HEALTH_PATH, handler=self.alive, scope=Scope.OPEN,
                summary="Tell whether the process is alive: its reactor runs", answers=_ANSWERS,
            ),
            Route(
                method="GET", path=READY_PATH, handler=self.ready, scope=Scope.OPEN,
                summary="Tell whether the broker can serve clients: check database, listeners and disk,"
                " and whether it is stopping", answers=_ANSWERS,
            ),
            *(
                Route(
                    method="GET", path=path, handler=self.status, scope=Scope.OPEN,
                    summary="Tell in a line of text whether the broker can serve clients, as /readyz does",
                    answers={
                        200: Content(STRING, "the broker runs", _TEXT),
                        503: Content(STRING, "the broker cannot serve clients", _TEXT),
                    },
                )
                for path in STATUS_PATHS
            ),
        )  # fmt: skip

    def alive(self, _call: Call) -> Deferred[Answer]:
        """Tell whether the process lives."""
        return succeed(_answer(self._checks.alive()))

    def ready(self, _call: Call) -> Deferred[Answer]:
        """Tell whether clients can be served."""
        return succeed(_answer(self._checks.ready()))

    def status(self, _call: Call) -> Deferred[Answer]:
        """Tell whether clients can be served, in the form of EMQX."""
        runs = self._checks.ready().is_good
        text = f"Node {self._node} is started\nholdfast is {'running' if runs else 'not_running'}"
        status = http.OK if runs else http.SERVICE_UNAVAILABLE
        return succeed(Answer(status, text.encode(), content_type=_TEXT))


def _answer(health: Health) -> Answer:
    return answer(health.content(), http.OK if health.is_good else http.SERVICE_UNAVAILABLE)
