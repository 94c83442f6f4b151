"""Paths into decoded payloads, such as ``$.climate.temperature`` or ``$['odd name'][0]``.

They are a part of JSONPath (RFC 9535). Only member names and indexes are allowed, so a path names one value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast_pipeline.errors import PipelineError

_STEP = re.compile(r"\.(?P<plain>[^\W\d]\w*)|\['(?P<quoted>[^']+)'\]|\[(?P<index>\d{1,6})\]")
#: What :func:`value_at` returns if there is nothing at a path.
MISSING = object()

Path = tuple[str | int, ...]


def json_path(text: str) -> Path:
    """Return the steps of a path. Raises :class:`PipelineError`."""
    steps: list[str | int] = []
    place = 1
    while text[:1] == "$" and (found := _STEP.match(text, place)):
        steps.append(int(found["index"]) if found["index"] else found["plain"] or found["quoted"])
        place = found.end()
    if place != len(text) or not steps:
        raise PipelineError(
            f"{text!r} is not a path; write it as in $.temperature, $.sensors[0].value or $['odd name']"
        )
    return tuple(steps)


def value_at(document: Any, path: Path) -> Any:
    """Return the value at a path, or :data:`MISSING`."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(document, Mapping) or step not in document:
                return MISSING
            document = document[step]
        else:
            if not isinstance(document, Sequence) or isinstance(document, (str, bytes)) or step >= len(document):
                return MISSING
            document = document[step]
    return document
