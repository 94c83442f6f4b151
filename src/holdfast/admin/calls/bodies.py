"""The JSON object in the body of a call."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from holdfast.admin.calls.call import Call
from holdfast.admin.calls.problems import bad_request


def object_of(call: Call, example: str) -> dict[str, Any]:
    """Return the JSON object in the body."""
    try:
        fields = json.loads(call.body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise bad_request(f"the body is a JSON object such as {example}")
    return fields


def check_text(fields: dict[str, Any]) -> None:
    """Refuse text with lone surrogates: JSON can escape them, but no answer could show them."""
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise bad_request("the body has text that is not valid Unicode: a surrogate without its other half") from None


def check_fields(fields: dict[str, Any], known: Collection[str]) -> None:
    """Refuse unknown fields."""
    for name in fields:
        if name not in known:
            raise bad_request(
                f"there is no field {name[:40]!a}; there are: {', '.join(known)}", name[:40], ", ".join(known)
            )
