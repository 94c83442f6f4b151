"""The findings of rules, a baseline of known ones, and the result as JUnit's XML."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from holdfast.config.toml import literal
from holdfast.core.units import Rate
from holdfast_pipeline.checks.finding import Finding, worst_first
from holdfast_pipeline.checks.rule_types import (
    AbsentRule,
    ChildrenRule,
    EnumerationRule,
    ExpiresRule,
    PublisherRule,
    RangeRule,
    RateRule,
    RefersRule,
    SchemaRule,
    SiblingsRule,
    StaleRule,
    StuckRule,
    TimeRule,
    UniqueRule,
)
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.formatting import counted, number, quantity, share, span, visible

#: The value that a rule shows of a payload without a time begins so.
_NO_TIME = "no "
#: The most parts of a rule (names of its level ``by``) that have a finding of their own.
MOST_PARTS = 200
#: Examples of a finding.
EXAMPLES = 3
_MATCHES_NOTHING, _NOT_JUDGED = "matches nothing", "not judged"
_LISTED_VALUES = 8
_UNKNOWN_CHANGES = "the history does not have their changes for the whole window"
_UNKNOWN_CHILDREN = "they are fewer than 10, or there is no topic that nearly all of them have"


@frozen
class Example:
    """A topic that fails a rule, and its value."""

    topic: str
    value: str


@frozen
class PartFailures:
    """The failures among ``checked`` messages of a rule; ``part`` is the name at its level ``by``, "" for the whole."""

    part: str
    checked: int
    failed: int
    examples: tuple[Example, ...]


@frozen
class RuleFigures:
    """What a rule found: messages that were ``checked``, and those that are ``unknown`` because the history lacks them.

    ``failing`` counts the parts with failures; ``worst`` has those with the most, at most :data:`MOST_PARTS`.
    """

    checked: int = 0
    unknown: int = 0
    failing: int = 0
    worst: tuple[PartFailures, ...] = ()


@frozen
class CheckFinding:
    """A finding of ``check`` with its figures. ``rule`` is the rule's name; "" for a finding without a rule."""

    rule: str
    finding: Finding
    checked: int = 0
    failed: int = 0
    examples: tuple[Example, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str]:
        """What stays the same while the figures change: the rule, the kind and the subject."""
        return self.rule, self.finding.kind, self.finding.subject


def findings_of(rule: Rule, figures: RuleFigures, everything: bool = True) -> Iterator[CheckFinding]:
    """Return the findings of a rule. With ``everything``, it is a finding that a rule has no topic at all."""
    subject = rule.pattern.text
    is_about_devices = isinstance(rule.options, ChildrenRule)
    unit = "device" if is_about_devices else "message"
    if figures.checked + figures.unknown == 0:
        if everything and not isinstance(rule.options, AbsentRule):
            yield CheckFinding(
                rule.name,
                Finding(
                    severity="warning", kind=_MATCHES_NOTHING, subject=subject,
                    evidence="No retained message has a topic that this rule is about.",
                    advice="Correct the rule's filter or shape, or remove the rule.",
                ),
            )  # fmt: skip
        return
    if figures.unknown:
        yield CheckFinding(
            rule.name,
            Finding(
                severity="note", kind=_NOT_JUDGED, subject=subject,
                evidence=f"{number(figures.unknown)} of {counted(figures.checked + figures.unknown, unit)} cannot"
                f" be judged: {_UNKNOWN_CHILDREN if is_about_devices else _UNKNOWN_CHANGES}.",
                advice="Name the topics that each must have: children = [...]." if is_about_devices
                else "Keep the history for longer (retainer.history), shorten the rule's window, or wait.",
                weight=figures.unknown,
            ),
            checked=figures.checked,
        )  # fmt: skip
    for part in figures.worst[:MOST_PARTS]:
        yield CheckFinding(
            rule.name,
            Finding(
                severity=rule.options.severity,
                kind=rule.type,
                subject=_with_part(rule, part.part),
                evidence=f"{number(part.failed)} of {counted(part.checked, unit)}"
                f" ({share(part.failed, part.checked)}) {'fails' if part.failed == 1 else 'fail'}."
                f" Required: {requirement(rule)}.",
                advice=rule.options.advice or _ADVICE[rule.type],
                topics=tuple(each.topic for each in part.examples),
                weight=part.failed,
            ),
            part.checked,
            part.failed,
            tuple(Example(each.topic, _shown(rule, each.value)) for each in part.examples),
        )
    more = figures.failing - len(figures.worst[:MOST_PARTS])
    if more > 0:
        yield CheckFinding(
            rule.name,
            Finding(
                severity=rule.options.severity, kind=f"{rule.type}, more", subject=subject,
                evidence=f"{counted(more, 'further name')} at the level {rule.options.by} have failures.",
                advice=rule.options.advice or _ADVICE[rule.type],
            ),
        )  # fmt: skip


def sorted_findings(found: Sequence[CheckFinding]) -> tuple[CheckFinding, ...]:
    """Return findings, the worst first; the order of equal ones does not depend on the order of the arguments."""
    return tuple(sorted(found, key=lambda each: (worst_first(each.finding), each.identity)))


def requirement(rule: Rule) -> str:
    """Return what a rule requires, in words."""
    match rule.options:
        case RangeRule(path=path, at_least=low, at_most=high):
            return f"a number {_between(_quantity(low), _quantity(high))}{_at(path)}"
        case SchemaRule(kind=kind, schema=schema):
            wanted = [f"the kind {kind}"] if kind else []
            return " and ".join([*wanted, *(["a payload that the JSON Schema allows"] if schema is not None else [])])
        case EnumerationRule(path=path, values=values):
            listed = ", ".join(literal(each) for each in values[:_LISTED_VALUES])
            more = f" and {len(values) - _LISTED_VALUES} more" if len(values) > _LISTED_VALUES else ""
            return f"one of {listed}{more}{_at(path)}"
        case StaleRule(at_most=most):
            return f"stored again in the last {span(most or 0)}"
        case StuckRule(path=path, at_most=most):
            return f"another value in the last {span(most or 0)}{_at(path)}, where half of its siblings have one"
        case RateRule(at_least=low, at_most=high, window=window):
            return f"changes of each topic {_between(_rate(low), _rate(high))}, counted over {span(window)}"
        case UniqueRule(path=path):
            return f"a value that no other topic has{_at(path)}"
        case SiblingsRule(siblings=siblings):
            return f"retained messages beside it: {', '.join(siblings)}"
        case ChildrenRule(children=children):
            return f"retained messages below it: {', '.join(children) or 'what nearly all others have'}"
        case AbsentRule():
            return "no retained message"
        case RefersRule(path=path):
            return f"the name of a retained topic{_at(path)}"
        case TimeRule(path=path, at_most=most):
            return f"a time within {span(most or 0)} of storing{_at(path)}"
        case ExpiresRule(at_most=most):
            return "an expiry" if most is None else f"an expiry of at most {span(most)}"
        case PublisherRule(client_id=client_id, username=username, window=window):
            named = [f"the Client Identifier {client_id}"] if client_id else []
            named += [f"the User Name {username}"] if username else []
            return " and ".join(named) or f"one publisher of each topic in the last {span(window)}"
    raise AssertionError(rule.type)


_ADVICE = {
    "range": "Look at these devices: a broken sensor, or another unit? If the values are right, widen the limits.",
    "schema": "Mend the publishers of these topics. Consumers that decode these payloads fail on them.",
    "enumeration": "Mend the publishers of these topics, or add the value to the rule.",
    "stale": "Find out why these devices publish nothing. If they are gone, clear their topics.",
    "stuck": "Look at these sensors: they publish, or are expected to, but measure nothing.",
    "rate": "Find out why these devices publish so often, or so rarely.",
    "unique": "Find the devices that share a value: a copied configuration, or a replaced device that was not cleared.",
    "siblings": "Find out why the siblings are missing. If the device is gone, clear its other topics, too.",
    "children": "Look whether these devices are set up like the others. If one is gone, clear its other topics, too.",
    "absent": "Clear these topics, and let their publishers send without RETAIN: each device that subscribes is given a"
    " retained command again.",
    "refers": "Find out whether the device of the named topic is gone. If so, clear the messages that name it, too.",
    "time": "Set the clocks of these devices, or find out why their messages come late.",
    "expires": "Let the publisher set a Message Expiry Interval, or set one by a policy (retainer.policies).",
    "publisher": "Find out who else publishes to these topics, and restrict them by authorization.",
}


def _with_part(rule: Rule, part: str) -> str:
    return rule.pattern.text.replace(f"{{{rule.options.by}}}", part, 1) if rule.options.by else rule.pattern.text


def _between(low: str | None, high: str | None) -> str:
    if low is None or high is None:
        return f"of at most {high}" if low is None else f"of at least {low}"
    return f"from {low} to {high}"


def _quantity(value: float | None) -> str | None:
    return None if value is None else quantity(value)


def _rate(value: Rate | None) -> str | None:
    return None if value is None else f"{number(value.amount)} in {span(value.seconds)}"


def _at(path: Sequence[str | int]) -> str:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f" at ${steps}" if path else ""


def _apart(seconds: float) -> str:
    """Return how far a time is from that of storing, in words."""
    return f"{span(abs(seconds))} {'before' if seconds < 0 else 'after'} storing"


def _shown(rule: Rule, value: str) -> str:
    """Return the value of an example. Times are seconds."""
    match rule.options:
        case StaleRule():
            return f"stale: {span(float(value))} old"
        case ExpiresRule():
            return "never expires" if value == "" else f"expires after {span(float(value))}"
        case TimeRule():
            return value if value.startswith(_NO_TIME) else _apart(float(value))
        case RateRule():
            return counted(int(value), "change")
        case StuckRule():
            seconds, _, shown = value.partition(" ")
            return f"{shown} for {span(float(seconds))}"
        case SiblingsRule() | ChildrenRule():
            return f"without {value}"
    return value


# Baselines: files with the findings that are known, so that a check tells only new ones.
#
# A finding is known by its rule, its kind and its subject. Its figures may change.

_VERSION = 1
_KEYS = ("rule", "kind", "subject")

Identity = tuple[str, str, str]


@frozen
class Compared:
    """The findings that are ``new``, those that are ``known``, and the known ones that are ``gone``."""

    new: tuple[CheckFinding, ...]
    known: tuple[CheckFinding, ...] = ()
    gone: tuple[Identity, ...] = ()


def compared(found: Sequence[CheckFinding], baseline: Collection[Identity], judged: Collection[str]) -> Compared:
    """Compare findings with a baseline. ``judged`` names the rules that tell all of their findings.

    A finding of another rule cannot be called gone.
    """
    present = {each.identity for each in found}
    return Compared(
        tuple(each for each in found if each.identity not in baseline),
        tuple(each for each in found if each.identity in baseline),
        tuple(sorted(each for each in baseline if each not in present and each[0] in judged)),
    )


def baseline_text(found: Iterable[CheckFinding]) -> str:
    """Return the content of a baseline with some findings: sorted, with one in each line."""
    known = sorted({each.identity for each in found})
    lines = ",\n".join("    " + json.dumps(dict(zip(_KEYS, each, strict=True)), ensure_ascii=True) for each in known)
    listed = f"\n{lines}\n  " if lines else ""
    return f'{{\n  "version": {_VERSION},\n  "findings": [{listed}]\n}}\n'


def read_baseline(content: bytes, name: str) -> frozenset[Identity]:
    """Return the findings in a baseline. Raises :class:`PipelineError`, which begins with the ``name`` of the file."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{name}: is no baseline: it is not JSON ({error}); {_REMEDY}") from error
    if not isinstance(found, dict) or found.get("version") != _VERSION or not isinstance(found.get("findings"), list):
        raise PipelineError(f"{name}: is no baseline of version {_VERSION}; {_REMEDY}")
    return frozenset(_identity(each, name, place) for place, each in enumerate(found["findings"], 1))


_REMEDY = "write it again with --write-baseline"


def _identity(found: Any, name: str, place: int) -> Identity:
    if isinstance(found, dict) and set(found) == set(_KEYS) and all(isinstance(each, str) for each in found.values()):
        return found["rule"], found["kind"], found["subject"]
    raise PipelineError(f"{name}: finding {place} needs {', '.join(_KEYS)}, each a text, and nothing else; {_REMEDY}")


# The result of a check as JUnit's XML, which build servers show. Pure.

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
