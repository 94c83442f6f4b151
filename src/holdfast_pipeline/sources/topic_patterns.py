"""Topic Filters as regular expressions, for topics in Parquet files."""

from __future__ import annotations

import re


def pattern(topic_filter: str) -> str:
    """Return a regular expression, for Python and Java, that matches the topics that the Topic Filter matches."""
    levels = topic_filter.split("/")
    not_system = r"(?!\$)" if levels[0] in ("+", "#") else ""  # A wildcard does not match a topic that begins with $.
    if levels == ["#"]:
        return rf"{not_system}(?s:.*)"
    rest = r"(?s:/.*)?" if levels[-1] == "#" else ""
    named = levels[:-1] if rest else levels
    return not_system + "/".join("[^/]*" if level == "+" else re.escape(level) for level in named) + rest
