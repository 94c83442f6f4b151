"""The findings of the page: what is wrong, how bad it is, and what to do. Pure.

A finding is about the data, as a shape with malformed payloads, or about the settings, as advice on flow control.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_pipeline.checks.discovered import findings_in
from holdfast_pipeline.checks.finding import Finding, worst_first
from holdfast_pipeline.formatting import number, size, span
from holdfast_pipeline.report.advice import advice
from holdfast_pipeline.report.figures import Figures


def findings(found: Figures) -> list[Finding]:
    """Return the findings, the worst first; of one severity, those about most messages first."""
    # The sort is stable: advice stays in its own order.
    return sorted([*findings_in(found.discovered), *_stale(found), *_settings(found)], key=worst_first)


def _stale(found: Figures) -> Iterator[Finding]:
    """Give the prefixes whose messages are all stale."""
    for one in found.stale:
        expiry = "none of them expires" if not one.expiring else f"{number(one.expiring)} of them expire"
        yield Finding(
            severity="warning",
            kind="stale prefix",
            subject=one.prefix,
            evidence=f"All {number(one.messages)} messages ({size(one.bytes)}) are stale, older than"
            f" {span(found.stale_after)}: the newest is {span(one.newest_age)} old, and {expiry}.",
            advice="If these devices are gone, clear their topics. If not, find out why they publish nothing.",
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
