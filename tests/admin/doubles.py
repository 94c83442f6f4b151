"""The API around a broker in memory."""

from __future__ import annotations

import json
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed

from holdfast.admin.address import API_PREFIX
from holdfast.admin.call import PROBLEM, Answer, Call
from holdfast.admin.callers import this_operator
from holdfast.admin.deadlines import Deadlines
from holdfast.admin.jobs import Jobs
from holdfast.admin.routing import RoutingTable
from holdfast.broker.retainer import compose_api
from holdfast.changes.moments import HistoryUnavailable
from holdfast.changes.telemetry import Telemetry
from holdfast.changes.telemetry_table import TelemetryPage
from holdfast.config.sections.retainer import RetainerConfig
from holdfast.retained.administration import Administration
from holdfast.retained.importing import Merger
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.sessions.operator_publisher import OperatorPublisher
from tests.doubles import MemoryBroker
from tests.storage.doubles import result_of


class NoHistory:
    """The history of a broker that keeps none."""

    def _refuse(self, *_arguments: object, **_options: object) -> Deferred[Any]:
        return fail(HistoryUnavailable("no history is kept; set retainer.history.enable = true"))

    events = moment = as_of = archived = topics = pair = _refuse

    def change_rules(self, _rules: object) -> None:
        """Record nothing."""

    def check_kept(self) -> None:
        raise HistoryUnavailable("no history is kept; set retainer.history.enable = true")


class NoTelemetry:
    """The telemetry of a broker that records nothing."""

    def hand_over(self) -> None:
        """Nothing waits."""

    def messages(self, *_asked: object) -> Deferred[TelemetryPage]:
        return succeed(TelemetryPage((), 0, True))


def _no_history() -> Any:
    return NoHistory()


class Desk:
    """A broker and its API. Calls are answered at once."""

    def __init__(
        self,
        broker: MemoryBroker | None = None,
        history: Any = None,
        config: RetainerConfig | None = None,
        **options: Any,
    ) -> None:
        self.broker = broker or MemoryBroker(**options)
        self.pauses = 0
        self.publisher = OperatorPublisher(self.broker.router, self.broker.clock)
        self.administration = Administration(
            self.broker.retained, self.broker.store, self.broker.now, self._pause, self.publisher
        )
        self.history = _no_history() if history is None else history
        self.jobs = Jobs(self.broker.now)
        self.api = compose_api(
            config or RetainerConfig(),
            administration=self.administration,
            retained=self.broker.retained,
            replays=self.broker.replays,
            history=self.history,
            telemetry=cast("Telemetry", getattr(self.broker, "telemetry", NoTelemetry())),
            publisher=self.publisher,
            can_change=True,
            location="memory",
            merger=self._merger(),
            jobs=self.jobs,
        )
        deadlines = Deadlines(self.broker.clock, self.jobs, lambda: not self.broker.store.available)
        self.table = RoutingTable(self.api.routes, run=deadlines.run)

    def _merger(self) -> Merger | None:
        store = self.broker.store
        if not isinstance(store, SQLRetainedStore):
            return None
        return Merger(self.broker.retained, store, now=self.broker.now, pause=self._pause)

    def _pause(self) -> Deferred[None]:
        self.pauses += 1
        return succeed(None)

    def answer(self, method: str, path: str = "", body: bytes | str | dict[str, Any] = b"", **arguments: str) -> Answer:
        """Make a call below the retainer's path."""
        if isinstance(body, dict):
            body = json.dumps(body)
        sent = body.encode() if isinstance(body, str) else body
        answering = self.table.answer(Call(method, API_PREFIX + path, arguments, sent, this_operator()))
        self.broker.settle()
        answer: Answer = result_of(answering)
        return answer

    def ask(self, method: str, path: str = "", body: bytes | str | dict[str, Any] = b"", **arguments: str) -> Any:
        """Make a call that succeeds; return its content."""
        answer = self.answer(method, path, body, **arguments)
        assert answer.status in (200, 204), answer
        return json.loads(answer.body) if answer.body else None

    def refused(self, method: str, path: str = "", body: bytes | str | dict[str, Any] = b"", **arguments: str) -> Any:
        """Make a call that is refused; return status, code and message."""
        answer = self.answer(method, path, body, **arguments)
        content = json.loads(answer.body)
        assert answer.content_type == PROBLEM
        assert content["status"] == answer.status
        return answer.status, content["code"], content["message"]

    def export(self, **arguments: str) -> bytes:
        """Return a whole export."""
        more = self.answer("GET", "/export", **arguments).more
        assert more is not None
        pieces = []
        while piece := result_of(more()):
            pieces.append(piece)
        return b"".join(pieces)

    def retain(self, topic: str, payload: bytes = b"x", **options: Any) -> None:
        """Publish, as a client."""
        client = self.broker.client("publisher", 5)
        client.publish(topic, payload, retain=True, **options)
        client.publish(topic + "/off", b"")

    def topics(self, **arguments: str) -> list[str]:
        """List topics."""
        return [row["topic"] for row in self.ask("GET", "/messages", **arguments)["data"]]
