"""Topic Filters as regular expressions, for topics in files."""

from __future__ import annotations

import re


def pattern(topic_filter: str) -> str:
    """Return what matches a whole topic where the Topic Filter does, to Python and to Java alike."""
    levels = topic_filter.split("/")
    shared = r"(?!\$)" if levels[0] in ("+", "#") else ""  # Wildcards leave out what begins with $.
    if levels == ["#"]:
        return rf"{shared}(?s:.*)"
    rest = r"(?s:/.*)?" if levels[-1] == "#" else ""
    named = levels[:-1] if rest else levels
    return shared + "/".join("[^/]*" if level == "+" else re.escape(level) for level in named) + rest
