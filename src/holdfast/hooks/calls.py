"""The call that lists hooks, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.arguments import INTEGER, STRING, TIME, array, nullable, record
from holdfast.admin.call import Answer, Call, Scope, answer
from holdfast.admin.routing import Content, Route, routes_of
from holdfast.core.units import date_of
from holdfast.hooks.delivery import Hook, HookFigures, Lane
from holdfast.watch.metrics import Kind, Metric, Reading

HOOKS_PATH = "/api/v5/hooks"

_HOOK = record(
    {
        "name": STRING, "server": STRING, "node": STRING, "events": {"type": "object"}, "state": {"type": "object"},
        "delivered_batches": INTEGER, "delivered_events": INTEGER, "failed_attempts": INTEGER,
        "dead_batches": INTEGER, "dead_events": INTEGER, "failing_since": nullable(TIME),
        "last_error": nullable(STRING),
    }
)  # fmt: skip


@frozen
class Running:
    """A hook and its lanes, by their names."""

    hook: Hook
    lanes: Mapping[str, Lane]

    def shown(self) -> dict[str, Any]:
        """Return the hook as the API shows it."""
        hook, figures = self.hook, self.hook.figures
        since = figures.failing_since
        return {
            "name": hook.name, "server": hook.place, "node": str(hook.node), "events": dict(hook.events),
            "state": {name: lane.state for name, lane in self.lanes.items()},
            "delivered_batches": figures.delivered_batches, "delivered_events": figures.delivered_events,
            "failed_attempts": figures.failed_attempts, "dead_batches": figures.dead_batches,
            "dead_events": figures.dead_events,
            "failing_since": None if since is None else date_of(round(1000 * since)),
            "last_error": figures.last_error or None,
        }  # fmt: skip


class HookCalls:
    """Answers calls about hooks."""

    def __init__(self, running: Sequence[Running]) -> None:
        self._running = running
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=HOOKS_PATH,
        scope=Scope.READ,
        summary="List the hooks, and what they have delivered since the start",
        answers={200: Content(record({"data": array(_HOOK)}), "the hooks")},
    )
    def list_hooks(self, _call: Call) -> Deferred[Answer]:
        """List the hooks."""
        return succeed(answer({"data": [each.shown() for each in self._running]}))


def hook_metrics(running: Sequence[Running], now: Callable[[], float]) -> list[Metric]:
    """Return the metrics of hooks, by their names. ``now`` returns seconds since the epoch."""

    def each(read: Callable[[HookFigures], float]) -> Callable[[], Reading]:
        return lambda: {(one.hook.name,): read(one.hook.figures) for one in running}

    def counted(name: str, text: str, read: Callable[[HookFigures], float]) -> Metric:
        return Metric(name=name, help=text, kind=Kind.COUNTER, read=each(read), labels=("name",))

    return [
        counted("holdfast_hook_batches_total", "Batches that hooks have delivered.", lambda f: f.delivered_batches),
        counted("holdfast_hook_events_total", "Events that hooks have delivered.", lambda f: f.delivered_events),
        counted("holdfast_hook_failures_total", "Attempts of hooks that failed.", lambda f: f.failed_attempts),
        counted("holdfast_hook_dead_events_total", "Events that hooks have given up.", lambda f: f.dead_events),
        Metric(
            name="holdfast_hook_failing_seconds", help="Time for which a hook has delivered nothing; 0: it delivers.",
            kind=Kind.GAUGE, labels=("name",),
            read=each(lambda f: 0.0 if f.failing_since is None else now() - f.failing_since),
        ),
    ]  # fmt: skip
