"""The comparison of a report with an earlier one, and the summary that a page leaves for it."""

from __future__ import annotations

import pytest
from attrs import evolve

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.report.advice import findings
from holdfast_pipeline.report.figures import Figures
from holdfast_pipeline.report.page import page
from holdfast_pipeline.report.summary import Summary, compare, read_summary, summary_of
from holdfast_pipeline.shapes import ShapesFound, ShapeTotals
from tests.pipeline.report.figures import HOSTILE, NOW, figures, malformed_in, shape


def report_of(*shapes: ShapeTotals) -> Figures:
    messages = sum(one.messages for one in shapes)
    found = ShapesFound(NOW, messages, messages, 0, messages, shapes)
    return evolve(figures(), shapes=found, discovered=malformed_in(*shapes), stale=())


def summary(found: Figures) -> Summary:
    return summary_of(found, findings(found))


@pytest.mark.parametrize("names", [("plant", "home"), HOSTILE])
def test_a_page_has_a_summary_that_a_later_report_reads(names: tuple[str, ...]) -> None:
    """Whatever the topics are called: no text ends the element."""
    found = figures(names)
    assert read_summary(page(found).encode(), "report.html") == summary(found)


def test_shapes_are_new_gone_grown_or_shrunk() -> None:
    """From a tenth and ten messages on; the largest difference comes first."""
    before = report_of(shape("gone", 5), shape("more", 100), shape("less", 50), shape("same", 1000), shape("few", 5))
    now = report_of(shape("new", 7), shape("more", 130), shape("less", 30), shape("same", 1050), shape("few", 9))
    found = compare(summary(before), summary(now))
    assert [(one.shape, one.verdict, one.messages) for one in found.changes] == [
        ("more", "grown", 30), ("less", "shrunk", -20), ("new", "new", 7), ("gone", "gone", -5),
    ]  # fmt: skip
    assert [found.count(verdict) for verdict in ("new", "gone", "grown", "shrunk")] == [1, 1, 1, 1]


def test_a_shape_whose_payloads_grow_has_grown() -> None:
    one = shape("a/b", 100)
    larger = evolve(one, bytes=one.bytes + 5000)
    assert [each.verdict for each in compare(summary(report_of(one)), summary(report_of(larger))).changes] == ["grown"]


def test_findings_are_new_or_solved() -> None:
    """The page marks the new ones, and lists those that are solved."""
    before, now = report_of(shape("old/{a}", 100, 2)), report_of(shape("new/{a}", 100, 2))
    found = compare(summary(before), summary(now))
    assert [one.subject for one in found.new] == ["new/{a}"]
    assert [one.subject for one in found.solved] == ["old/{a}"]
    text = page(now, previous=summary(before))
    assert text.count('class="new"') == 1
    assert "malformed payloads: <bdi" in text
    assert 'id="comparison"' in text
    assert 'id="comparison"' not in page(now)


@pytest.mark.parametrize(
    "text",
    [
        "", "<html>", '<script type="application/json" id="summary">[]</script>',
        '<script type="application/json" id="summary">{"format": 99}</script>',
        '<script type="application/json" id="summary">{"format": 1, "taken_at": 1e400}</script>',
        '<script type="application/json" id="summary">' + "[" * 100_000 + "</script>",
        page(figures()).replace('"messages":', '"messages":-'),
        page(figures()).replace('"shapes":[', '"shapes":[7,'),
    ],
)  # fmt: skip
def test_a_page_without_a_summary_is_explained(text: str) -> None:
    with pytest.raises(PipelineError, match=r"^old\.html: no summary of a report can be read .*Leave out --previous"):
        read_summary(text.encode(), "old.html")
