"""What the page is made with: the Jinja2 environment, and elements with JSON.

Topics, Topic Filters and Client Identifiers are text of strangers. Jinja2 escapes all text (autoescape). Before that,
:func:`_shown` makes invisible characters visible and cuts long text. Only templates and ``Markup`` are markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import cycle
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast_pipeline import formatting

#: Characters of the longest text shown. Sentences hold topics, which the filter ``visible`` cuts to fewer.
_LONGEST = 4000
_CELL = re.compile("<td(?=[ >])")
_FILTERS = ("visible", "number", "quantity", "counted", "short", "size", "span", "rough", "moment", "share", "words")


@cache
def environment() -> Environment:
    """Return the environment that escapes all text and fails for a name that a template misspells."""
    made = Environment(
        loader=PackageLoader("holdfast_pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {name: getattr(formatting, name) for name in _FILTERS}
    made.filters["labelled"] = _labelled
    return made


def _labelled(rows: Markup, heads: Sequence[str]) -> Markup:
    """Give the cells of a table's rows the heads of their columns, but the first one of each row.

    The rows are of templates: text in them is escaped, so ``<td`` begins a cell.
    """
    labels = cycle(("", *heads[1:]))

    def labelled(cell: re.Match[str]) -> str:
        label = next(labels)
        return f'{cell[0]} data-h="{escape(label)}"' if label else cell[0]

    return Markup(_CELL.sub(labelled, rows))  # noqa: S704 - markup of templates


def _shown(value: Any) -> Any:
    """Return the form in which an expression of a template comes into the page; Jinja2 escapes it afterwards."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return formatting.visible(value, _LONGEST)
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    # None and whole objects come from a mistake in a template: str() would hide it. It also names the undefined value.
    return int(value)


# JSON in the page: a script element that no browser runs. Pure.


def opening(name: str) -> str:
    """Return the tag that begins the element with this id."""
    return f'<script type="application/json" id="{name}">'


CLOSING = "</script>"


def json_element(name: str, value: Any) -> Markup:
    """Return an element with the id ``name``, a word, that holds ``value``, which is without NaN and infinity."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # In a script, only "<" could end the element, or begin a comment. JSON has it in strings only.
    return Markup(opening(name) + text.replace("<", "\\u003c") + CLOSING)  # noqa: S704 - escaped here
