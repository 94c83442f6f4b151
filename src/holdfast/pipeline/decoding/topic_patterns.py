"""Topic patterns: Topic Filters whose wildcards may have names, which become columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.sources.options import check_filter

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}\Z")


@frozen
class TopicPattern:
    """The topics that a Topic Filter matches, and the names of some of their levels (counted from 0)."""

    text: str
    topic_filter: str
    levels: Mapping[str, int]


def topic_pattern(text: str) -> TopicPattern:
    """Return what ``site/{site}/dev/{device}/temp`` means; ``+`` and ``#`` are allowed too.

    Raises :class:`PipelineError`.
    """
    levels: dict[str, int] = {}
    parts = []
    for place, level in enumerate(text.split("/")):
        found = _NAME.match(level)
        if found is None and ("{" in level or "}" in level):
            raise PipelineError(
                f"pattern {text!r}: {level!r} is no level; a named one is written as {{name}}, of letters, digits and "
                "_, and is a whole level"
            )
        if found is not None:
            name = found[1]
            if name.lower() in (known.lower() for known in levels):
                raise PipelineError(f"pattern {text!r}: has two levels of the name {name}; columns have different ones")
            levels[name] = place
        parts.append("+" if found else level)
    topic_filter = "/".join(parts)
    if not topic_filter:
        raise PipelineError("a pattern has at least one character; all topics are #")
    check_filter(topic_filter)
    return TopicPattern(text, topic_filter, levels)
