"""A finding: a fault, with its severity, its evidence and advice."""

from __future__ import annotations

from attrs import frozen

from holdfast_pipeline.choices import SEVERITY_NAMES

#: The severities, the worst first.
SEVERITIES = SEVERITY_NAMES


@frozen(kw_only=True)
class Finding:
    """Something that an operator should know.

    ``severity`` is one of :data:`SEVERITIES`. ``kind`` is a word for findings that are alike, ``subject`` the shape,
    prefix or setting. ``evidence`` has figures, ``topics`` has examples. ``setting`` has lines of the configuration, ""
    for none. ``weight`` orders findings of one severity: the number of messages that are concerned.
    """

    severity: str
    kind: str
    subject: str
    evidence: str
    advice: str
    setting: str = ""
    topics: tuple[str, ...] = ()
    weight: int = 0


def worst_first(finding: Finding) -> tuple[int, int]:
    """Return the key that sorts findings: the worst first; of one severity, those about most messages first."""
    return SEVERITIES.index(finding.severity), -finding.weight
