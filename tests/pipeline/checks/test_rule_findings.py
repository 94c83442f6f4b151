"""From figures of rules to findings, baselines and JUnit's XML: pure."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_pipeline.checks.finding import Finding
from holdfast_pipeline.checks.rule_findings import (
    MOST_PARTS,
    CheckFinding,
    Example,
    PartFailures,
    RuleFigures,
    baseline_text,
    compared,
    findings_of,
    junit,
    read_baseline,
    sorted_findings,
)
from holdfast_pipeline.checks.rule_types import RangeRule, StaleRule
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.ranges import topic_pattern
from tests.hostile_strings import TEXTS

_RANGE = Rule("t", "range", topic_pattern("hq/{floor}/t"), RangeRule(shape="hq/{floor}/t", at_least=1.0, by="floor"))


def _finding(subject: str, rule: str = "t", severity: str = "error") -> CheckFinding:
    found = Finding(severity=severity, kind="range", subject=subject, evidence="Bad.", advice="Mend it.", weight=1)
    return CheckFinding(rule, found, 2, 1, (Example(subject, "9"),))


_FINDINGS = st.builds(
    _finding, st.text(max_size=8), st.sampled_from("abc"), st.sampled_from(("error", "warning", "note"))
)


def test_a_finding_has_its_count_its_share_its_requirement_and_examples() -> None:
    worst = (PartFailures("2", 8, 1, (Example("hq/2/t", "0.5"),)),)
    (found,) = findings_of(_RANGE, RuleFigures(20, 0, 1, worst))
    assert found.finding.evidence == "1 of 8 messages (12 %) fails. Required: a number of at least 1."
    assert (found.finding.subject, found.identity) == ("hq/2/t", ("t", "range", "hq/2/t"))
    assert (found.finding.topics, found.examples) == (("hq/2/t",), (Example("hq/2/t", "0.5"),))


def test_a_rule_without_topics_and_one_without_history_are_findings() -> None:
    (nothing,) = findings_of(_RANGE, RuleFigures())
    assert (nothing.finding.kind, nothing.finding.severity) == ("matches nothing", "warning")
    assert not list(findings_of(_RANGE, RuleFigures(), everything=False))
    (unknown,) = findings_of(_RANGE, RuleFigures(checked=1, unknown=3))
    assert unknown.finding.evidence.startswith("3 of 4 messages cannot be judged")
    assert unknown.finding.severity == "note"


def test_the_findings_of_a_rule_are_bounded_and_the_others_counted() -> None:
    worst = tuple(PartFailures(str(number), 1, 1, ()) for number in range(MOST_PARTS + 9))
    found = list(findings_of(_RANGE, RuleFigures(900, 0, 900, worst)))
    assert len(found) == MOST_PARTS + 1
    assert found[-1].finding.evidence == "700 further names at the level floor have failures."


def test_times_of_examples_are_told_in_words() -> None:
    stale = Rule("s", "stale", topic_pattern("#"), StaleRule(filter="#", at_most=60.0))
    worst = (PartFailures("", 1, 1, (Example("a", "7200"),)),)
    (found,) = findings_of(stale, RuleFigures(1, 0, 1, worst))
    assert found.examples == (Example("a", "stale: 2 h old"),)


@given(st.lists(_FINDINGS, max_size=8), st.randoms())
def test_the_order_of_findings_does_not_depend_on_the_order_they_come_in(
    found: list[CheckFinding], random: Random
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    assert [each.identity for each in sorted_findings(shuffled)] == [each.identity for each in sorted_findings(found)]


@given(st.lists(_FINDINGS, max_size=8), st.lists(_FINDINGS, max_size=8))
def test_a_baseline_knows_what_was_written_and_tells_what_is_gone(
    before: list[CheckFinding], now: list[CheckFinding]
) -> None:
    """Whatever the texts. Each finding is new or known; what was known and is not found now is gone."""
    baseline = read_baseline(baseline_text(before).encode(), "b")
    assert baseline == {each.identity for each in before}
    said = compared(now, baseline, {"a", "b"})
    assert sorted(each.identity for each in (*said.new, *said.known)) == sorted(each.identity for each in now)
    assert not {each.identity for each in said.new} & baseline
    expected = {each for each in baseline if each[0] in "ab"} - {each.identity for each in now}
    assert set(said.gone) == expected


def test_a_baseline_ignores_figures_and_is_made_for_a_version_control() -> None:
    """One finding in each line, sorted."""
    text = baseline_text([_finding("b"), _finding("a"), _finding("a")])
    assert [line for line in text.splitlines() if "subject" in line] == [
        '    {"rule": "t", "kind": "range", "subject": "a"},', '    {"rule": "t", "kind": "range", "subject": "b"}',
    ]  # fmt: skip
    assert json.loads(text)["version"] == 1


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"version": 2, "findings": []}', '{"version": 1}', '{"version": 1, "findings": [{"rule": "a"}]}',
     '{"version": 1, "findings": [{"rule": 1, "kind": "a", "subject": ""}]}', "[" * 100_000],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_told_with_the_remedy(content: str) -> None:
    with pytest.raises(PipelineError, match=r"\Abase\.json: .*--write-baseline"):
        read_baseline(content.encode(), "base.json")


def test_junit_has_a_case_for_each_rule() -> None:
    """New findings of the wanted severity fail; others and known ones are output; rules left out are skipped."""
    said = compared(
        [_finding("x"), _finding("w", "mild", "warning"), _finding("k", "known"), _finding("p", "", "error")],
        {("known", "range", "k")},
        (),
    )
    document = junit(said, {"t": "range", "mild": "range", "known": "range", "skip": "rate"}, ["skip"], ["error"], 1.5)
    root = ET.fromstring(document)
    (suite,) = root
    assert root.tag == "testsuites"
    assert suite.attrib == {
        "name": "holdfast-pipeline check", "tests": "5", "failures": "2", "errors": "0", "skipped": "1",
        "time": "1.500",
    }  # fmt: skip
    cases = {case.attrib["name"]: [below.tag for below in case] for case in suite}
    assert cases == {
        "t": ["failure"],
        "mild": ["system-out"],
        "known": ["system-out"],
        "skip": ["skipped"],
        "range": ["failure"],
    }
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == "error: x: Bad."
    assert "x: 9" in (failure.text or "")


@pytest.mark.parametrize("text", [*TEXTS, "\x00\x08]]><&\ud800"])
def test_hostile_texts_keep_junit_readable(text: str) -> None:
    said = compared([_finding(text)], (), ())
    (suite,) = ET.fromstring(junit(said, {"t": "range"}, (), ("error",), 0.0))
    assert suite.attrib["failures"] == "1"
