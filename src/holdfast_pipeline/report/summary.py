"""The summary that a report leaves in its page, and the comparison with an earlier one. Pure.

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
from holdfast_pipeline.report.templating import CLOSING, json_element, opening

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


# The comparison of a report with an earlier one: new, gone, grown and shrunk shapes. Pure.

#: A shape has grown or shrunk if its messages or its bytes differ by this share, and by as many.
_SHARE, _MESSAGES, _BYTES = 0.1, 10, 1024


@frozen
class ShapeChange:
    """A shape in both reports, or in one of them."""

    shape: str
    before: ShapeSummary | None
    now: ShapeSummary | None

    @property
    def messages(self) -> int:
        """How many messages it has more than before."""
        return (self.now.messages if self.now else 0) - (self.before.messages if self.before else 0)

    @property
    def bytes(self) -> int:
        """How many bytes it has more than before."""
        return (self.now.bytes if self.now else 0) - (self.before.bytes if self.before else 0)

    @property
    def verdict(self) -> str:
        """What has become of it: new, gone, grown or shrunk; "" if it is about the same."""
        if self.before is None:
            return "new"
        if self.now is None:
            return "gone"
        differing = [
            difference
            for difference, before, least in (
                (self.messages, self.before.messages, _MESSAGES),
                (self.bytes, self.before.bytes, _BYTES),
            )
            if abs(difference) >= max(least, _SHARE * before)
        ]
        return "" if not differing else "grown" if differing[0] > 0 else "shrunk"


@frozen
class Comparison:
    """What differs from the report ``before``. ``changes`` are the shapes that differ, the largest difference first.

    ``new`` and ``solved`` are the findings that only this report or only the earlier one has.
    """

    before: Summary
    changes: tuple[ShapeChange, ...]
    new: tuple[FindingSummary, ...]
    solved: tuple[FindingSummary, ...]

    def count(self, verdict: str) -> int:
        """Return how many shapes are new, gone, grown or shrunk."""
        return sum(1 for one in self.changes if one.verdict == verdict)


def compare(before: Summary, now: Summary) -> Comparison:
    """Compare two reports."""
    known, present = {one.id: one for one in before.shapes}, {one.id: one for one in now.shapes}
    changes = [
        ShapeChange((present.get(each) or known[each]).shape, known.get(each), present.get(each))
        for each in {**known, **present}
    ]
    differing = [one for one in changes if one.verdict]
    differing.sort(key=lambda one: (-abs(one.messages), -abs(one.bytes), one.shape))
    old, new = {one.id for one in before.findings}, {one.id for one in now.findings}
    return Comparison(
        before,
        tuple(differing),
        tuple(one for one in now.findings if one.id not in old),
        tuple(one for one in before.findings if one.id not in new),
    )
