"""HTML and SVG that cannot be broken out of: text becomes markup only by being escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from holdfast.pipeline.formatting import visible

#: The longest text that is shown of anything: topics may have 64 KB.
LONGEST = 120
_VOID = {"meta", "rect", "line", "link", "br"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | int | float | Markup | None | Iterable["Content"]


def text(found: str, longest: int = LONGEST) -> Markup:
    """Return any text as markup that shows it: escaped, without what hides or turns text around, and not too long."""
    return Markup(escape(visible(found, longest)))


def el(name: str, /, *content: Content, **attributes: str | int | float | None) -> Markup:
    """Return an element. Content that is no markup is escaped, as attributes are; those that are None are left out.

    ``class_`` stands for ``class``, and ``_`` within other names for ``-``.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{said}>" if name in ("meta", "link", "br") else f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{joined(content)}</{name}>")


def joined(content: Content) -> Markup:
    """Return content one after the other."""
    if content is None:
        return Markup()
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        # Sentences of our own are longer than what is shown of a topic, and may have such in them.
        return text(content, 2000)
    if isinstance(content, int | float):
        return Markup(_figure(content))
    return Markup("".join(joined(one) for one in content))


def name(found: str | None, longest: int = LONGEST) -> Markup:
    """Return a topic, a Topic Filter or a Client Identifier, whatever its direction, apart from what is around it."""
    if found is None:
        return el("em", "no Client Identifier")
    if not found:
        return el("em", "(empty)")
    return el("bdi", text(found, longest), class_="name")


def percent(part: float) -> str:
    """Return a part of 1 for an attribute."""
    return f"{_figure(100 * part)}%"


def _value(value: str | int | float) -> str:
    return escape(visible(value, 4000)) if isinstance(value, str) else _figure(value)


def _figure(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
