"""The call that Prometheus makes: ``GET /metrics``."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.call import Answer, Call
from holdfast.admin.routing.route import Content, Route
from holdfast.admin.routing.schemas import STRING
from holdfast.metrics.scrape import Metrics, Run, Scrape, scrape

METRICS_PATH = "/metrics"


class MetricsAPI:
    """Answers scrapes. ``run`` runs a function in a thread."""

    def __init__(self, metrics: Metrics, run: Run) -> None:
        self._metrics = metrics
        self._run = run
        self.routes = (
            Route(
                method="GET",
                path=METRICS_PATH,
                handler=self.scrape,
                scope=Scope.READ,
                open_on_loopback=True,
                summary="Show all metrics in the format of Prometheus, or of OpenMetrics if Accept asks for it",
                answers={200: Content(STRING, "the metrics", "text/plain")},
            ),
        )

    def scrape(self, call: Call) -> Deferred[Answer]:
        """Answer with the metrics, piece by piece."""
        return scrape(self._metrics, call.accept, self._run).addCallback(_answer)


def _answer(begun: Scrape) -> Answer:
    return Answer(content_type=begun.content_type, more=begun.more)
