"""The parts of the page about changes: who makes them, and how many there are. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.pipeline.formatting import moment, number, short, size, span
from holdfast.pipeline.jobs.tree import Branch
from holdfast.pipeline.report.charts import Step, columns, legend
from holdfast.pipeline.report.findings import Findings, History, Talker
from holdfast.pipeline.report.markup import Markup, el
from holdfast.pipeline.report.parts import ranking, section

_HOUR = 3600


def talkers(found: Findings) -> Markup:
    """Show who changes and who holds the most."""
    totals, history = found.totals, found.history
    held = el(
        "div",
        el("h3", "Publishers, by messages retained"),
        ranking(found.clients, totals.messages),
    )
    if history is None:
        return section(
            "talkers", "Top talkers",
            el("p", "There is no history, so that this tells what publishers have retained, and not how often they"
               " change it. Turn on retainer.history to see that.", class_="soft"),
            el("div", held, el("div", el("h3", "First levels, by messages retained"),
               ranking(_first_levels(found), totals.messages, 3)), class_="pair"),
        )  # fmt: skip
    return section(
        "talkers",
        "Top talkers",
        el("p", f"Of {number(history.changes)} changes since {moment(history.since)}.", class_="soft"),
        el(
            "div",
            el("div", el("h3", "Publishers, by changes"), ranking(history.clients, history.changes)),
            el("div", el("h3", "Prefixes, by changes"), ranking(history.prefixes, history.changes, 3)),
            el("div", el("h3", "Topics, by changes"), ranking(history.topics, history.changes, 3)),
            held,
            class_="pair",
        ),
    )


def churn(found: Findings) -> Markup:
    """Show the changes over time."""
    history = found.history
    if history is None:
        return section(
            "churn", "Changes over time",
            el("p", "There is no history: nothing is known of changes. Turn on retainer.history to see them here."),
        )  # fmt: skip
    first = history.since // 1000 // history.step
    last = history.until // 1000 // history.step
    known = {one.at // 1000 // history.step: one for one in history.churn}
    steps = []
    for place in range(first, last + 1):
        at, one = place * history.step * 1000, known.get(place)
        parts = (one.sets, one.clears, one.expires) if one else (0, 0, 0)
        told = f"{moment(at)}\n{number(parts[0])} set, {number(parts[1])} cleared, {number(parts[2])} expired"
        steps.append(Step(_day_or_hour(at, history.step), told + (f"; {size(one.bytes)}" if one else ""), parts))
    busiest = max(history.churn, key=lambda one: one.sets + one.clears + one.expires, default=None)
    peak = ""
    if busiest is not None:
        peak = f", and {number(busiest.sets + busiest.clears + busiest.expires)} in the {span(history.step)} from "
        peak += moment(busiest.at)
    sentence = f"{' '.join(pace(history))}{peak}. Times are in UTC; a column is {span(history.step)}."
    return section(
        "churn",
        "Changes over time",
        el("p", sentence, class_="soft"),
        legend("set", "cleared", "expired"),
        columns(steps, "Changes over time", short),
    )


def pace(history: History) -> tuple[str, str]:
    """Tell how many changes there are, and in which time: in an hour on average, unless there was less than one."""
    seconds = max(1, (history.until - history.since) / 1000)
    if seconds < _HOUR:
        return short(history.changes), f"changes in {span(seconds)}"
    return short(history.changes / seconds * _HOUR), "changes an hour"


def _first_levels(found: Findings) -> tuple[Talker, ...]:
    first: list[Branch] = [one for one in found.branches if one.depth == 1]
    first.sort(key=lambda one: (-one.messages, one.prefix))
    return tuple(Talker(one.prefix, one.messages, one.bytes) for one in first[: len(found.clients) or 1])


def _day_or_hour(at: int, step: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):{'%d %b' if step >= 14_400 else '%d %b %H:%M'}}"
