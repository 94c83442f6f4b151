"""Lists of users and rules that the API answers in pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
