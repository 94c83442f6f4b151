"""The result of a check as JUnit's XML, which build servers show. Pure."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping, Sequence

from holdfast_pipeline.checks.baseline import Compared
from holdfast_pipeline.checks.rule_findings import CheckFinding
from holdfast_pipeline.formatting import visible

_SUITE = "holdfast-pipeline check"
_LONGEST = 2000


def junit(
    compared: Compared, rules: Mapping[str, str], left_out: Collection[str], failing: Collection[str], seconds: float
) -> bytes:
    """Return the document: a test case for each rule, and one for each kind of finding without a rule.

    ``rules`` maps the names of rules to their types. A case fails if it has a new finding whose severity is in
    ``failing``; other findings are its output. Rules that were ``left_out`` are skipped.
    """
    cases = dict(rules)
    for each in (*compared.new, *compared.known):
        cases.setdefault(_case(each), "discovery")
    suite = ET.Element("testsuite", name=_SUITE)
    failures = 0
    for name, kind in cases.items():
        case = ET.SubElement(suite, "testcase", classname=f"check.{kind}", name=visible(name), time="0")
        new = [each for each in compared.new if _case(each) == name]
        bad = [each for each in new if each.finding.severity in failing]
        if bad:
            failures += 1
            failure = ET.SubElement(
                case, "failure", type=bad[0].finding.severity, message=_line(bad[0]) + _more(len(bad) - 1)
            )
            failure.text = _text(bad)
        elif name in left_out:
            ET.SubElement(case, "skipped", message="it needs all messages, and only changed ones were read")
        others = [each for each in new if each not in bad]
        known = [each for each in compared.known if _case(each) == name]
        told = [*(_line(each) for each in others), *(f"known: {_line(each)}" for each in known)]
        if told:
            ET.SubElement(case, "system-out").text = "\n".join(told)
    skipped = sum(1 for name in left_out if name in cases)
    suite.attrib |= {
        "tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": str(skipped),
        "time": f"{seconds:.3f}",
    }  # fmt: skip
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'.encode()


def _case(found: CheckFinding) -> str:
    return found.rule or found.finding.kind


def _line(found: CheckFinding) -> str:
    return visible(f"{found.finding.severity}: {found.finding.subject}: {found.finding.evidence}", _LONGEST)


def _more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def _text(found: Sequence[CheckFinding]) -> str:
    lines = []
    for each in found:
        lines += [_line(each), *(f"  {visible(one.topic)}: {visible(one.value)}" for one in each.examples)]
        lines.append(f"  {visible(each.finding.advice, _LONGEST)}")
    return "\n".join(lines)
