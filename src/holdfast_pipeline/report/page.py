"""The page: one HTML file that needs no other file and sends no request. Pure.

The templates hold the texts and the markup. Python prepares the values that a filter cannot compute.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files

from markupsafe import Markup

from holdfast.version import version
from holdfast_pipeline.checks.finding import SEVERITIES
from holdfast_pipeline.formatting import short, span
from holdfast_pipeline.report.advice import advice, findings
from holdfast_pipeline.report.charts import charts_element, charts_of
from holdfast_pipeline.report.figures import Figures, History, NamedTotals, anchor
from holdfast_pipeline.report.summary import Summary, compare, element, summary_of
from holdfast_pipeline.report.templating import environment

#: The parts in their order: the name of the template, which is also the part's id, and the heading.
_PARTS = (
    ("findings", "Findings"), ("shapes", "Shapes"), ("topics", "Topics"), ("filters", "Replays"),
    ("talkers", "Top talkers"), ("churn", "Changes over time"), ("stale", "Age"), ("expiry", "Expiry"),
    ("sizes", "Sizes"),
)  # fmt: skip
#: The scripts in their order: the library of the charts, what draws with it, and what works without it.
_SCRIPTS = ("vendor/echarts.js", "charts.js", "page.js")
_PREFIXES_LISTED = 20
_FILTERS_LISTED = 15
_CHANGES_LISTED = 50
_SHAPES_LISTED = 200
_COMPARISON = ("comparison", "Since the last report")
_HOUR = 3600


def page(found: Figures, title: str = "Retained messages", previous: Summary | None = None) -> str:
    """Return the report as one HTML document in UTF-8. The title may be any text.

    ``previous`` is the summary of an earlier report, to compare with.
    """
    given = findings(found)
    summary = summary_of(found, given)
    comparison = None if previous is None else compare(previous, summary)
    style, scripts = _read("page.css"), [_read(name) for name in _SCRIPTS]
    charts = charts_of(found)
    by_messages = sorted(found.branches, key=lambda one: (-one.messages, one.prefix))
    first_levels = [one for one in by_messages if one.depth == 1][: len(found.clients) or 1]
    listed = found.shapes.shapes[: max(_SHAPES_LISTED, len(found.details))]
    deliveries = found.deliveries.deliveries if found.deliveries is not None else ()
    costliest = sorted(deliveries, key=lambda one: (-one.bytes_together, one.topic_filter))[:_FILTERS_LISTED]
    return environment().get_template("page.html").render(
        advice=advice(found),
        anchors={one.shape: anchor(one.shape) for one in listed if one.shape in found.details},
        change_rate=change_rate,
        charts=charts,
        charts_element=charts_element(charts),
        costliest=costliest,
        comparison=comparison,
        findings=given,
        first_levels=[NamedTotals(one.prefix, one.messages, one.bytes) for one in first_levels],
        found=found,
        largest_prefixes=by_messages[:_PREFIXES_LISTED],
        listed_shapes=listed,
        listed_changes=_CHANGES_LISTED,
        new_findings=set() if comparison is None else {(one.kind, one.subject) for one in comparison.new},
        parts=_PARTS if comparison is None else (*_PARTS[:2], _COMPARISON, *_PARTS[2:]),
        policy=_policy(style, scripts),
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - files of this package
        severities=SEVERITIES,
        style=Markup(style),  # noqa: S704 - a file of this package
        summary=element(summary),
        title=title,
        version=version(),
    )  # fmt: skip


def change_rate(history: History) -> tuple[str, str]:
    """Return a number of changes and its unit. A history of minutes tells nothing about an hour: it has its own."""
    seconds = max(1, (history.until - history.since) / 1000)
    if seconds < _HOUR:
        return short(history.changes), f"changes in {span(seconds)}"
    return short(history.changes / seconds * _HOUR), "changes an hour"


def _policy(style: str, scripts: Iterable[str]) -> str:
    """Return a policy that allows this style and these scripts by their hashes, and nothing else."""
    allowed = " ".join(_hash(script) for script in scripts)
    return f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {allowed}"


def _hash(code: str) -> str:
    return f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files("holdfast_pipeline.report").joinpath("static", *name.split("/")).read_text("utf-8")
