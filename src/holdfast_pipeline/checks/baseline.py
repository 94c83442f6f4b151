"""Baselines: files with the findings that are known, so that a check tells only new ones.

A finding is known by its rule, its kind and its subject. Its figures may change.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from attrs import frozen

from holdfast_pipeline.checks.rule_findings import CheckFinding
from holdfast_pipeline.errors import PipelineError

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
