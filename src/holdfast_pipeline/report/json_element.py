"""JSON in the page: a script element that no browser runs. Pure."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup


def opening(name: str) -> str:
    """Return the tag that begins the element with this id."""
    return f'<script type="application/json" id="{name}">'


CLOSING = "</script>"


def json_element(name: str, value: Any) -> Markup:
    """Return an element with the id ``name``, a word, that holds ``value``, which is without NaN and infinity."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # In a script, only "<" could end the element, or begin a comment. JSON has it in strings only.
    return Markup(opening(name) + text.replace("<", "\\u003c") + CLOSING)  # noqa: S704 - escaped here
