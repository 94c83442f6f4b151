"""The comparison of a report with an earlier one: what is new, gone, grown and shrunk. Pure."""

from __future__ import annotations

from attrs import frozen

from holdfast_pipeline.report.summary import FindingSummary, ShapeSummary, Summary

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
