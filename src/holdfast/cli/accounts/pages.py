"""Lists of users and rules that the API answers in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.cli.reporting import show, show_json

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access

USERS = "/api/v5/users"
RULES = "/api/v5/rules"


def pages(access: Access, path: str) -> Iterator[dict[str, Any]]:
    """Yield all objects of a list that is answered in pages."""
    arguments: dict[str, str] = {}
    while True:
        page = access.call("GET", path, arguments)
        yield from page["data"]
        if "cursor" not in page["meta"]:
            return
        arguments = {"cursor": page["meta"]["cursor"]}


def show_all(access: Access, path: str, as_json: bool, text: Callable[[dict[str, Any]], str]) -> None:
    """Show all objects of a list: each as one line of JSON, or as its ``text``."""
    for one in pages(access, path):
        if as_json:
            show_json(one)
        else:
            show(text(one))
