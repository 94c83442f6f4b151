"""The Jinja2 environment of the report: it controls the values that come into the page, and their form.

Topics, Topic Filters and Client Identifiers are text of strangers. Jinja2 escapes all text (autoescape). Before that,
:func:`_shown` makes invisible characters visible and cuts long text. Only templates and ``Markup`` are markup.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast_pipeline import formatting

#: Characters of the longest text shown. Sentences hold topics, which the filter ``visible`` cuts to fewer.
_LONGEST = 4000
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
    return made


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
