"""The findings of the page: what is wrong, how bad it is, and what to do. Pure.

A finding is about the data, as a shape with malformed payloads, or about the settings, as advice on flow control.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.pipeline.checks.finding import Finding, worst_first
from holdfast.pipeline.formatting import number, share, size, span
from holdfast.pipeline.report.advice import advice
from holdfast.pipeline.report.figures import Figures

#: Shapes of fewer messages are too few to tell which kind of payload is the wrong one.
_FEW = 5
#: From this share on, payloads of another kind are a second kind rather than mistakes.
_SECOND_KIND = 0.1
#: Findings of one kind that the page lists. It counts the others.
_LISTED = 12
#: Topics that a finding names.
_EXAMPLES = 3


def findings(found: Figures) -> list[Finding]:
    """Return the findings, the worst first; of one severity, those about most messages first."""
    # The sort is stable: advice stays in its own order.
    return sorted([*_malformed(found), *_stale(found), *_settings(found)], key=worst_first)


def _malformed(found: Figures) -> Iterator[Finding]:
    """Give the shapes in which few payloads are of another kind than the others."""
    mixed = [one for one in found.shapes.shapes if one.unlike and one.messages >= _FEW]
    mistakes = [one for one in mixed if one.unlike < _SECOND_KIND * one.messages]
    for one in sorted(mistakes, key=lambda each: (-each.unlike, each.shape))[:_LISTED]:
        kinds = found.details[one.shape].kinds if one.shape in found.details else ()
        yield Finding(
            severity="error",
            kind="malformed payloads",
            subject=one.shape,
            evidence=f"{number(one.unlike)} of {number(one.messages)} payloads"
            f" ({share(one.unlike, one.messages)}) are of another kind than {one.kind}.",
            advice="Look at the payloads of the other kind, and mend their publishers. Consumers that decode this"
            " shape fail on them, or leave them out.",
            topics=tuple(kind.newest.topic for kind in kinds if kind.kind != one.kind)[:_EXAMPLES],
            weight=one.unlike,
        )


def _stale(found: Figures) -> Iterator[Finding]:
    """Give the prefixes whose messages are all stale."""
    for one in found.stale:
        expiry = "none of them expires" if not one.expiring else f"{number(one.expiring)} of them expire"
        yield Finding(
            severity="warning",
            kind="stale prefix",
            subject=one.prefix,
            evidence=f"All {number(one.messages)} messages ({size(one.bytes)}) are older than"
            f" {span(found.stale_after)}: the newest is {span(one.newest_age)} old, and {expiry}.",
            advice="If these devices are gone, clear their topics. If not, find out why they are silent.",
            weight=one.messages,
        )


def _settings(found: Figures) -> Iterator[Finding]:
    """Give the advice on settings."""
    for one in advice(found):
        yield Finding(
            severity="note",
            kind="setting",
            subject=one.title,
            evidence=one.why,
            advice=one.brings,
            setting=f"{one.table}\n{one.setting}",
        )
