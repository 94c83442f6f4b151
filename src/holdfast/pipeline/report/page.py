"""The page: one file that needs no other, and asks nobody for anything. Pure."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files

from holdfast.pipeline.formatting import moment
from holdfast.pipeline.report.changes import churn, talkers
from holdfast.pipeline.report.findings import Findings
from holdfast.pipeline.report.markup import Markup, el
from holdfast.pipeline.report.replays import advised, costliest
from holdfast.pipeline.report.sizes import measure, sizes, topics
from holdfast.pipeline.report.times import expiry, staleness

#: The parts in their order: what a link to each says, and what makes it.
_PARTS = (
    ("topics", "Topics", topics), ("filters", "Replays", costliest), ("advice", "What to change", advised),
    ("talkers", "Top talkers", talkers), ("churn", "Changes over time", churn), ("stale", "Age", staleness),
    ("expiry", "Expiry", expiry), ("sizes", "Sizes", sizes),
)  # fmt: skip


def page(found: Findings, title: str = "Retained messages") -> str:
    """Return the report as one HTML document of UTF-8; a title may be any text."""
    style, script = _read("page.css"), _read("page.js")
    return "<!DOCTYPE html>\n" + el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            # Should markup ever get in as text, it can do nothing: only these two pieces count.
            el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
            el("meta", name="referrer", content="no-referrer"),
            el("link", rel="icon", href="data:,"),
            el("title", title),
            el("style", Markup(style)),
        ),
        el(
            "body",
            el(
                "header",
                el("h1", title),
                el("p", f"{found.database}, as of {moment(found.taken_at)}", class_="soft"),
                el("nav", [el("a", said, href=f"#{key}") for key, said, _ in _PARTS], aria_label="Parts of this page"),
            ),
            el(
                "main",
                el("ul", [el("li", el("b", said), el("span", what)) for said, what in measure(found)], class_="tiles"),
                [part(found) for _, _, part in _PARTS],
            ),
            el(
                "footer",
                el("p", f"Made by holdfast-pipeline {version('holdfast')}. Bytes are those of payloads; KB, MB and GB"
                   " are powers of 1024. All times are in UTC."),
            ),
            el("script", Markup(script)),
        ),
        lang="en",
    )  # fmt: skip


def _policy(style: str, script: str) -> str:
    return f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"


def _hash(code: str) -> str:
    return f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files("holdfast.pipeline.report").joinpath(name).read_text("utf-8")
