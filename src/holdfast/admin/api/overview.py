"""Calls that show listeners and counts of this broker. Paths and fields are EMQX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.arguments import ANYTHING, BOOLEAN, FLAG, INTEGER, STRING, array, flag_of, one_of, record
from holdfast.admin.call import Answer, Call, Scope, answer
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.watch.scrape import Metrics, Run, Scrape, scrape

_LISTENER = record(
    {
        "id": STRING,
        "name": STRING,
        "type": {"type": "string", "enum": ["tcp", "ssl", "ws", "wss"]},
        "bind": STRING,
        "tls": BOOLEAN,
        "zone": STRING,
        "running": BOOLEAN,
        "status": record(
            {
                "running": BOOLEAN,
                "current_connections": INTEGER,
                "max_connections": {"description": 'a number, or "infinity"', "type": ["integer", "string"]},
            }
        ),
    }
)


class IOverview(Protocol):
    """The state of the broker, as values for JSON."""

    def listeners(self) -> Sequence[Mapping[str, Any]]:
        """Return the listeners."""

    def node(self) -> Mapping[str, Any]:
        """Return this node."""

    def stats(self) -> Mapping[str, int]:
        """Return the present counts by name."""


class OverviewCalls:
    """Answers calls about the broker."""

    def __init__(self, overview: IOverview) -> None:
        self._overview = overview
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path="/api/v5/listeners",
        scope=Scope.READ,
        summary="List the listeners with their connections",
        answers={200: Content(array(_LISTENER), "the listeners")},
    )
    def listeners(self, _call: Call) -> Deferred[Answer]:
        """Show the listeners."""
        return succeed(answer(self._overview.listeners()))

    @Route(
        method="GET",
        path="/api/v5/stats",
        scope=Scope.READ,
        summary="Show the counts of clients, Sessions, subscriptions and messages",
        parameters=(query("aggregate", FLAG, "one object, instead of a list with an object for each node"),),
        answers={200: Content(ANYTHING, "the counts")},
    )
    def stats(self, call: Call) -> Deferred[Answer]:
        """Show the counts."""
        stats = self._overview.stats()
        if flag_of(call.arguments, "aggregate"):
            return succeed(answer(stats))
        return succeed(answer([{"node": self._overview.node()["node"], **stats}]))


# The calls of orchestrators and load balancers: ``GET /healthz``, ``GET /readyz``, and EMQX's ``GET /status``.


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
            *routes_of(self),
        )  # fmt: skip

    @Route(
        method="GET",
        path=HEALTH_PATH,
        scope=Scope.OPEN,
        summary="Tell whether the process is alive: its reactor runs",
        answers=_ANSWERS,
    )
    def alive(self, _call: Call) -> Deferred[Answer]:
        """Tell whether the process lives."""
        return succeed(_health_answer(self._checks.alive()))

    @Route(
        method="GET",
        path=READY_PATH,
        scope=Scope.OPEN,
        summary="Tell whether the broker can serve clients: check database, listeners and disk,"
        " and whether it is stopping",
        answers=_ANSWERS,
    )
    def ready(self, _call: Call) -> Deferred[Answer]:
        """Tell whether clients can be served."""
        return succeed(_health_answer(self._checks.ready()))

    def status(self, _call: Call) -> Deferred[Answer]:
        """Tell whether clients can be served, in the form of EMQX."""
        runs = self._checks.ready().is_good
        text = f"Node {self._node} is started\nholdfast is {'running' if runs else 'not_running'}"
        status = http.OK if runs else http.SERVICE_UNAVAILABLE
        return succeed(Answer(status, text.encode(), content_type=_TEXT))


def _health_answer(health: Health) -> Answer:
    return answer(health.content(), http.OK if health.is_good else http.SERVICE_UNAVAILABLE)


# The call that Prometheus makes: ``GET /metrics``.


METRICS_PATH = "/metrics"


class MetricsAPI:
    """Answers scrapes. ``run`` runs a function in a thread."""

    def __init__(self, metrics: Metrics, run: Run) -> None:
        self._metrics = metrics
        self._run = run
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=METRICS_PATH,
        scope=Scope.READ,
        open_on_loopback=True,
        summary="Show all metrics in the format of Prometheus, or of OpenMetrics if Accept asks for it",
        answers={200: Content(STRING, "the metrics", "text/plain")},
    )
    def scrape(self, call: Call) -> Deferred[Answer]:
        """Answer with the metrics, piece by piece."""
        return scrape(self._metrics, call.accept, self._run).addCallback(_metrics_answer)


def _metrics_answer(begun: Scrape) -> Answer:
    return Answer(content_type=begun.content_type, more=begun.more)
