"""The summary that a report leaves in its page, for the comparison of a later report with it. Pure.

Shapes and findings have ids, because long texts are cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from attrs import asdict, frozen
from markupsafe import Markup

from holdfast_pipeline.checks.finding import Finding
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.formatting import visible
from holdfast_pipeline.report.figures import Figures
from holdfast_pipeline.report.json_element import CLOSING, json_element, opening

_FORMAT = 1
_LONGEST = 200
_NAME = "summary"
_ELEMENT = re.compile(f"{re.escape(opening(_NAME))}(.*?){CLOSING}", re.DOTALL)


@frozen
class ShapeSummary:
    """A shape with its messages and their bytes. Its text may be cut, its id not."""

    id: str
    shape: str
    messages: int
    bytes: int


@frozen
class FindingSummary:
    """A finding of a ``kind`` about a ``subject``."""

    id: str
    severity: str
    kind: str
    subject: str


@frozen
class Summary:
    """What a report leaves for the next one; ``taken_at`` is in milliseconds since the epoch."""

    taken_at: int
    messages: int
    bytes: int
    shapes: tuple[ShapeSummary, ...]
    findings: tuple[FindingSummary, ...]


def summary_of(found: Figures, findings: Iterable[Finding]) -> Summary:
    """Return the summary of a report."""
    return Summary(
        found.taken_at,
        found.totals.messages,
        found.totals.bytes,
        tuple(
            ShapeSummary(_id(one.shape), visible(one.shape, _LONGEST), one.messages, one.bytes)
            for one in found.shapes.shapes
        ),
        tuple(
            FindingSummary(_id(one.kind, one.subject), one.severity, one.kind, visible(one.subject, _LONGEST))
            for one in findings
        ),
    )


def element(summary: Summary) -> Markup:
    """Return the element for the page."""
    return json_element(_NAME, {"format": _FORMAT, **asdict(summary)})


def read_summary(page: bytes, name: str) -> Summary:
    """Return the summary in a page; ``name`` is for messages. Raises :class:`PipelineError` if there is none."""
    found = _ELEMENT.search(page.decode("utf-8", "replace"))
    try:
        if found is None:
            raise ValueError("there is none")
        content = json.loads(found[1])
        if content["format"] != _FORMAT:
            raise ValueError("another version wrote it")
        return Summary(
            _count(content["taken_at"]),
            _count(content["messages"]),
            _count(content["bytes"]),
            tuple(
                ShapeSummary(str(one["id"]), str(one["shape"]), _count(one["messages"]), _count(one["bytes"]))
                for one in content["shapes"]
            ),
            tuple(FindingSummary(*(str(one[key]) for key in _FINDING)) for one in content["findings"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PipelineError(
            f"{name}: no summary of a report can be read ({error}); allowed: a page that this version of"
            " holdfast-pipeline report wrote. Leave out --previous once, and compare with the new page next time"
        ) from error


_FINDING = ("id", "severity", "kind", "subject")
_MOST_COUNT = 253_402_300_799_999  # the end of the year 9999, as a time; no count is higher


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= _MOST_COUNT:
        raise ValueError(f"found {str(value)[:40]!r} in place of a count")
    return value


def _id(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
