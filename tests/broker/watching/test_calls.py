"""The calls about the broker itself: metrics, health, alarms and recent figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from holdfast.admin.call import ANYONE, Answer, Call, Caller, Scope, Via
from holdfast.admin.routing import RoutingTable
from holdfast.broker.watch import monitoring_routes
from tests.broker.watching.watched import WatchedBroker
from tests.storage.doubles import result_of

READER = Caller("reader", None, frozenset({Scope.READ}), Via.KEY)
LOCAL = Caller(on_loopback=True)
CHIEF = Caller("chief", None, frozenset({Scope.ADMIN}), Via.KEY)


class Desk:
    """Makes calls."""

    def __init__(self, broker: WatchedBroker) -> None:
        self.table = RoutingTable(monitoring_routes(broker.monitoring, broker.now, 7))

    def ask(self, method: str, path: str, caller: Caller = READER, accept: str = "", **arguments: str) -> Answer:
        found: Answer = result_of(self.table.answer(Call(method, path, arguments, b"", caller, accept)))
        return found

    def text(self, answer: Answer) -> str:
        """Return the whole content of an answer."""
        pieces = [answer.body]
        while answer.more is not None and (piece := result_of(answer.more())):
            pieces.append(piece)
        return b"".join(pieces).decode()

    def content(self, method: str, path: str, caller: Caller = READER, **arguments: str) -> Any:
        return json.loads(self.text(self.ask(method, path, caller, **arguments)))


@pytest.fixture
def desk(broker: WatchedBroker) -> Desk:
    return Desk(broker)


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("", "text/plain", parse_text),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", parse_openmetrics),
    ],
)
def test_prometheus_gets_every_metric_in_a_family_of_its_own(
    broker: WatchedBroker, desk: Desk, accept: str, content_type: str, parse: Callable[[str], Iterable[Family]]
) -> None:
    """From this machine without a key, in both forms, as the parsers of Prometheus' own library read them."""
    broker.watch()
    found = desk.ask("GET", "/metrics", LOCAL, accept)
    assert found.content_type.startswith(f"{content_type}; version=")
    names = [family.name for family in parse(desk.text(found))]
    assert len(names) == len(set(names))
    wanted = {metric.name.removesuffix("_total") for metric in broker.monitoring.metrics}
    assert len(wanted) == len(broker.monitoring.metrics)  # OpenMetrics takes a counter's family without _total
    assert wanted <= set(names)


def test_openmetrics_is_sent_to_whoever_accepts_it(desk: Desk) -> None:
    found = desk.ask("GET", "/metrics", LOCAL, "application/openmetrics-text; version=1.0.0")
    assert found.content_type.startswith("application/openmetrics-text")
    assert desk.text(found).endswith("# EOF\n")


def test_health_and_readiness_are_open_and_have_their_status(broker: WatchedBroker, desk: Desk) -> None:
    broker.watch()
    for path in ("/healthz", "/readyz"):
        found = desk.ask("GET", path, ANYONE)
        assert (found.status, json.loads(found.body)["status"]) == (200, "ok")
    broker.around.stopping = True
    found = desk.ask("GET", "/readyz", ANYONE)
    assert found.status == 503
    assert json.loads(found.body)["checks"]["process"] == "the broker is stopping"
    assert desk.ask("GET", "/healthz", ANYONE).status == 200


def test_alarms_are_listed_and_past_ones_are_cleared(broker: WatchedBroker, desk: Desk) -> None:
    for _ in range(2):
        broker.parts.writer._attempts = 1
        broker.monitoring.watch.look()
        broker.monitoring.watch.look()
        broker.clock.advance(5)
        (alarm,) = desk.content("GET", "/api/v5/alarms")["data"]
        broker.parts.writer._attempts = 0
        broker.monitoring.watch.look()
    assert (alarm["name"], alarm["severity"], alarm["node"]) == ("database_unavailable", "critical", "7")
    assert alarm["duration"] == 5000
    assert "deactivate_at" not in alarm
    assert desk.content("GET", "/api/v5/alarms", activated="true")["data"] == []
    past = desk.content("GET", "/api/v5/alarms", activated="false", limit="1")
    assert past["meta"] == {"limit": 1, "count": 2, "hasnext": True}
    assert past["data"][0]["deactivate_at"].endswith("Z")
    assert desk.ask("DELETE", "/api/v5/alarms").status == 403
    assert desk.content("DELETE", "/api/v5/alarms", CHIEF) == {"count": 2}
    assert desk.content("GET", "/api/v5/alarms", activated="false")["data"] == []


def test_recent_figures_are_those_of_the_last_seconds(broker: WatchedBroker, desk: Desk) -> None:
    """All figures of the contract, the oldest first; and the whole ring comes in pieces."""
    assert desk.content("GET", "/api/v5/monitor") == []
    assert desk.content("GET", "/api/v5/monitor_current")["time_stamp"] is None
    broker.watch()
    broker.client("one")
    for _ in range(90):
        broker.advance(1)
    records = desk.content("GET", "/api/v5/monitor", latest="60")
    assert len(records) == 60
    assert [record["time_stamp"] for record in records] == sorted(record["time_stamp"] for record in records)
    assert records[-1] == desk.content("GET", "/api/v5/monitor_current")
    assert {"received_msg_rate", "sent_msg_rate", "connections", "sessions", "subscriptions", "retained_msg_count",
            "retained_bytes", "puback_p50_ms", "puback_p99_ms", "reactor_lag_p99_ms", "writer_queue_bytes",
            "disk_free_bytes", "memory_bytes"} <= set(records[0])  # fmt: skip
    assert records[-1]["live_connections"] == 1
    assert len(desk.content("GET", "/api/v5/monitor", latest="3600")) == 9


@pytest.mark.parametrize(("path", "name", "value"), [
    ("/api/v5/monitor", "latest", "0"),
    ("/api/v5/monitor", "latest", "x"),
    ("/api/v5/monitor", "latest", "86401"),
    ("/api/v5/alarms", "activated", "yes"),
    ("/api/v5/alarms", "limit", "0"),
    ("/metrics", "name", "x"),
])  # fmt: skip
def test_a_bad_argument_is_refused_with_its_name(desk: Desk, path: str, name: str, value: str) -> None:
    found = desk.ask("GET", path, READER, "", **{name: value})
    assert found.status == 400
    assert name in json.loads(found.body)["detail"]


def test_strangers_see_neither_alarms_nor_figures(desk: Desk) -> None:
    for path in ("/api/v5/alarms", "/api/v5/monitor", "/api/v5/monitor_current", "/metrics"):
        assert desk.ask("GET", path, ANYONE).status == 401
    assert desk.ask("GET", "/api/v5/alarms", LOCAL).status == 401
    assert desk.ask("GET", "/metrics", READER).status == 200
