"""What the parts of the page are made of: headings, tables and rankings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.pipeline.formatting import moment, number, share, size, span
from holdfast.pipeline.report.charts import Bar, bars
from holdfast.pipeline.report.findings import One, Talker
from holdfast.pipeline.report.markup import Content, Markup, el, name


def section(key: str, title: str, *content: Content) -> Markup:
    """Return a part with a heading that can be linked to."""
    return el("section", el("h2", title, id=f"{key}-title"), *content, id=key, aria_labelledby=f"{key}-title")


def table(heads: Sequence[str], rows: Iterable[Sequence[Content]], described: str) -> Markup:
    """Return a table that can be scrolled where the page is narrow."""
    head = el("tr", [el("th", one, scope="col") for one in heads])
    body = [el("tr", [el("td", cell) for cell in row]) for row in rows]
    whole = el("table", el("thead", head), el("tbody", body))
    return el("div", whole, class_="wide", role="region", aria_label=described, tabindex=0)


def ranking(rows: Sequence[Talker], whole: int, hue: int = 0) -> Markup:
    """Show who has the most."""
    if not rows:
        return el("p", "None.", class_="soft")
    most = max(row.messages for row in rows) or 1
    return bars(
        (
            Bar(
                name(row.name),
                f"{number(row.messages)} ({share(row.messages, whole)}), {size(row.bytes)}",
                row.messages / most,
            )
            for row in rows
        ),
        hue,
    )  # fmt: skip


def messages(rows: Iterable[One], taken_at: int) -> Markup:
    """Show single messages."""
    cells: list[Sequence[Content]] = [
        (name(one.topic), size(one.bytes), span(max(0, taken_at - one.at) // 1000), moment(one.at), name(one.client_id))
        for one in rows
    ]
    return table(("topic", "payload", "age", "stored", "publisher"), cells, "Messages")
