"""The tables of all metrics and of all alarms for the documentation, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.alarms.conditions import Condition
from holdfast.metrics.metric import Metric


def metrics_table(metrics: Iterable[Metric]) -> str:
    """Return the table of metrics, in the order of their names."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in sorted(metrics, key=lambda one: one.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {_cell(metric.help)} |")
    return "\n".join(lines) + "\n"


def alarms_table(conditions: Iterable[Condition]) -> str:
    """Return the table of alarms, in the order of their names."""
    lines = ["| alarm | severity | what is wrong | what to do |", "|---|---|---|---|"]
    for condition in sorted(conditions, key=lambda one: one.name):
        meaning, remedy = _cell(condition.meaning), _cell(condition.remedy)
        lines.append(f"| `{condition.name}` | {condition.severity.value} | {meaning} | {remedy} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
