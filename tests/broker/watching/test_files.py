"""The dashboard, the alert rules and the documentation name the metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from holdfast.broker.metrics import alarms_table, metrics_table
from holdfast.watch.metrics import Kind
from tests.broker.watching.watched import WatchedBroker

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "operator" / "monitor.md"
DASHBOARD = ROOT / "etc" / "grafana" / "holdfast.json"
RULES = ROOT / "etc" / "prometheus" / "holdfast-alerts.yml"

#: labels that Prometheus itself adds
_ADDED = {"instance", "job", "le"}
_USE = re.compile(r"\b(holdfast_[a-z0-9_]+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"\b([a-z_]+)\s*(?:=~|!~|!=|=)")
_SHOWN = re.compile(r"\{\{\s*\$?(?:labels\.)?([a-z_]+)\s*\}\}")
_GROUPED = re.compile(r"\b(?:by|without) \(([^)]*)\)")


def expressions() -> list[tuple[str, str]]:
    """Return each expression of the dashboard and of the rules, with the text that shows its labels."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [
        (target["expr"], target["legendFormat"]) for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    found += [(each["expr"], "") for each in dashboard["annotations"]["list"]]
    found += [(each["query"]["query"], "") for each in dashboard["templating"]["list"] if each["type"] == "query"]
    for rule in RULES.read_text().split("- alert:")[1:]:
        expression = re.search(r"expr: (?:>-\n)?(.*?)\n +(?:for|labels):", rule, re.DOTALL)
        assert expression is not None
        found.append((expression[1], rule))
    return found


def test_the_dashboard_and_the_rules_use_metrics_and_labels_that_exist(broker: WatchedBroker) -> None:
    """A metric that is renamed would leave a panel empty, and an alert silent."""
    series: dict[str, set[str]] = {}
    for metric in broker.monitoring.metrics:
        ends = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
        for end in ends:
            series[metric.name + end] = {*metric.labels, *_ADDED}
    used: set[str] = set()
    for expression, shown in expressions():
        names = {name for name, _ in _USE.findall(expression)}
        assert names <= set(series), expression
        used |= names
        labels = set().union(*(series[name] for name in names)) if names else _ADDED
        for name, matched in _USE.findall(expression):
            assert set(_LABEL.findall(matched)) <= series[name], expression
        for group in _GROUPED.findall(expression):
            assert {word.strip() for word in group.split(",")} <= labels, expression
        assert set(_SHOWN.findall(shown)) - {"value"} <= labels, (expression, shown)
    assert len(used) > 40


def test_every_rule_is_documented_and_says_what_to_do() -> None:
    rules = RULES.read_text().split("- alert:")[1:]
    page = PAGE.read_text()
    assert len(rules) > 8
    for rule in rules:
        assert f"`{rule.split()[0]}`" in page
        assert "action:" in rule


def test_the_rules_of_critical_alarms_name_the_critical_alarms(broker: WatchedBroker) -> None:
    """The pattern of the two rules about alarms parts them by severity."""
    patterns = set(re.findall(r'name[!=]~"([^"]*)"', RULES.read_text()))
    (pattern,) = patterns
    for condition in broker.monitoring.watch.conditions:
        assert bool(re.fullmatch(pattern, condition.name)) is (condition.severity.value == "critical"), condition.name


def test_panels_have_their_own_places_and_numbers() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def part(name: str) -> str:
    """Return the generated part of the page."""
    return re.split(rf"<!-- (?:{name}:.*|end of {name}) -->\n", PAGE.read_text())[1]


@pytest.mark.parametrize("name", ["metrics", "alarms"])
def test_the_page_has_all_metrics_and_alarms(tmp_path: Path, name: str) -> None:
    """Write the table anew with the text that this test shows."""
    broker = WatchedBroker(tmp_path, most_memory=1 << 30)  # with the alarm about limits.memory
    table = metrics_table(broker.monitoring.metrics)
    if name == "alarms":
        table = alarms_table(broker.monitoring.watch.conditions)
    broker.close()
    assert part(name) == table, table
