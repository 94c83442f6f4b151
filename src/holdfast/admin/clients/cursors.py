"""The cursors of lists of clients and subscriptions: opaque text, which callers copy unchanged."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from holdfast.admin.calls.arguments import bad_cursor

#: a cursor is not longer than a Client Identifier and a Topic Filter can be, escaped
_LONGEST = 1 << 20


def cursor_for(*parts: str | None) -> str:
    """Return the cursor with these parts."""
    return urlsafe_b64encode(json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()).decode().rstrip("=")


def parts_of(arguments: Mapping[str, str], count: int) -> list[str | None] | None:
    """Return the parts of the cursor, None without one. Only the last part may be null."""
    cursor = arguments.get("cursor", "")
    if not cursor:
        return None
    if len(cursor) > _LONGEST or not cursor.isascii():
        raise bad_cursor()
    try:
        parts = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        raise bad_cursor() from None
    if not isinstance(parts, list) or len(parts) != count or not all(isinstance(each, str) for each in parts[:-1]):
        raise bad_cursor()
    if not isinstance(parts[-1], str) and not (parts[-1] is None and count > 1):
        raise bad_cursor()
    return parts
