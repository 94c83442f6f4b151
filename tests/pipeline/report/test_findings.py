"""The findings of a report: their order, their severity, and what is none."""

from __future__ import annotations

from attrs import evolve

from holdfast_pipeline.checks.discovered import NOTHING, Malformed
from holdfast_pipeline.checks.finding import SEVERITIES
from holdfast_pipeline.report.advice import findings
from holdfast_pipeline.report.figures import Figures
from holdfast_pipeline.report.page import page
from holdfast_pipeline.shapes import ShapesFound, ShapeTotals
from tests.pipeline.report.figures import NOW, branch, empty, figures, malformed_in, shape


def with_shapes(*shapes: ShapeTotals) -> Figures:
    messages = sum(one.messages for one in shapes)
    totals = evolve(empty().totals, messages=messages)
    return evolve(
        empty(),
        totals=totals,
        shapes=ShapesFound(NOW, messages, messages, 0, messages, shapes),
        discovered=malformed_in(*shapes),
    )


def test_few_payloads_of_another_kind_are_malformed() -> None:
    """With the figures as evidence; the shape with most of them first."""
    found = findings(with_shapes(shape("a/{b}", 1000, 3), shape("c/{d}", 500, 40), shape("e/f", 500)))
    assert [(one.severity, one.kind, one.subject) for one in found] == [
        ("error", "malformed payloads", "c/{d}"),
        ("error", "malformed payloads", "a/{b}"),
    ]
    assert "3 of 1,000 payloads (0.3 %) are of another kind than object." in found[1].evidence


def test_the_page_names_each_topic_with_a_payload_of_another_kind() -> None:
    """As ``check`` does: each of them has to be mended."""
    topics = tuple(f"a/{number}" for number in range(30))
    given = evolve(figures(), discovered=evolve(NOTHING, malformed=[Malformed("a/{b}", 1000, 30, "object", topics)]))
    (found,) = (one for one in findings(given) if one.kind == "malformed payloads")
    assert found.topics == topics
    assert all(f"{topic}</bdi></li>" in page(given) for topic in topics)


def test_a_second_kind_of_payload_and_few_messages_are_no_mistakes() -> None:
    assert findings(with_shapes(shape("mixed/{a}", 1000, 300), shape("few/{a}", 4, 1))) == []


def test_the_worst_findings_come_first() -> None:
    """Errors, warnings, notes; of one severity those about most messages, and advice in its own order."""
    given = figures()
    lasting = evolve(given.totals, lasting=given.totals.messages)
    found = findings(evolve(given, totals=lasting, stale=(branch("small", 3), branch("large", 50))))
    places = [SEVERITIES.index(one.severity) for one in found]
    assert places == sorted(places)
    assert [one.subject for one in found if one.kind == "stale prefix"] == ["large", "small"]
    assert found[-1].kind == "setting"


def test_the_page_begins_with_the_findings() -> None:
    """Each with its severity as a word, its evidence and what to do. Without any, the page says so."""
    text = page(figures())
    assert text.index('id="findings"') < text.index('id="shapes"') < text.index('id="topics"')
    for one in findings(figures()):
        assert f"{one.severity}: {one.kind}" in text
        assert one.evidence.split("“")[0] in text
    assert "None: no shape has malformed payloads" in page(
        evolve(figures(), stale=(), shapes=with_shapes(shape("a/b")).shapes)
    )
