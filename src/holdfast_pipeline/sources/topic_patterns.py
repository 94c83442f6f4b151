"""Topic Filters as users write them: with named levels, such as ``site/{site}/temp``; and as regular expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.options import check_filter

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}\Z")


@frozen
class TopicPattern:
    """A pattern, its Topic Filter, and the place of each named level (from 0)."""

    text: str
    topic_filter: str
    levels: Mapping[str, int]


def topic_pattern(text: str) -> TopicPattern:
    """Read a pattern such as ``site/{site}/dev/{device}/temp``; ``+`` and ``#`` are allowed, too.

    Raises :class:`PipelineError`.
    """
    levels: dict[str, int] = {}
    parts = []
    for place, level in enumerate(text.split("/")):
        found = _NAME.match(level)
        if found is None and ("{" in level or "}" in level):
            raise PipelineError(
                f"pattern {text!r}: {level!r} is not a named level; a named level is {{name}}, of letters, digits and "
                "_, and nothing beside it"
            )
        if found is not None:
            name = found[1]
            if name.lower() in (known.lower() for known in levels):
                raise PipelineError(f"pattern {text!r}: two levels have the name {name}; choose different names")
            levels[name] = place
        parts.append("+" if found else level)
    topic_filter = "/".join(parts)
    if not topic_filter:
        raise PipelineError("a pattern has at least one character; for all topics, write #")
    check_filter(topic_filter)
    return TopicPattern(text, topic_filter, levels)


def pattern(topic_filter: str) -> str:
    """Return a regular expression, for Python and Java, that matches the topics that the Topic Filter matches."""
    levels = topic_filter.split("/")
    not_system = r"(?!\$)" if levels[0] in ("+", "#") else ""  # A wildcard does not match a topic that begins with $.
    if levels == ["#"]:
        return rf"{not_system}(?s:.*)"
    rest = r"(?s:/.*)?" if levels[-1] == "#" else ""
    named = levels[:-1] if rest else levels
    return not_system + "/".join("[^/]*" if level == "+" else re.escape(level) for level in named) + rest
