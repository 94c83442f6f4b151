"""Calls that list or clear retained messages in parts, each of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.cli.reporting import say
from holdfast.terminal_text import printable

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access

#: messages that one call lists, and that one call clears
_PAGE = 1000
_CLEARED = 5000


def pages(access: Access, selected: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield all selected messages, page by page."""
    arguments = {"limit": str(_PAGE), **selected}
    while True:
        page = access.call("GET", "/messages", arguments)
        yield from page["data"]
        if not page["meta"]["hasnext"]:
            say_left_out(page["meta"].get("left_out", ()))
            return
        arguments["cursor"] = page["meta"]["cursor"]


def say_left_out(filters: Iterable[str]) -> None:
    """Say which topics the history does not know at the time of an answer."""
    names = ", ".join(map(printable, filters))
    if names:
        say(f"left out, because the history does not know them then: the topics of {names}")


def clear(access: Access, selected: Mapping[str, str], report: Callable[[int], None], count: int = 0) -> int:
    """Clear all selected messages, part by part. Return ``count`` and their number; ``report`` is told each sum."""
    arguments = {"limit": str(_CLEARED), **selected}
    while True:
        answer = access.call("DELETE", "/messages", arguments)
        count += answer["count"]
        report(count)
        if not answer["meta"]["hasnext"]:
            return count
        arguments["cursor"] = answer["meta"]["cursor"]
