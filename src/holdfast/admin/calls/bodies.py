"""The JSON in the body of a call. It is read strictly: what is ambiguous is refused, with the path of the value."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.admin.calls.call import UNREAD, Call
from holdfast.admin.calls.problems import RefusedCall, bad_request
from holdfast.strict_json import BadJSON, read_json

#: Bytes of a body that is read at once. A thread reads longer ones.
SHORT = 1 << 16


def json_of(call: Call) -> Any:
    """Return the JSON in the body."""
    if call.parsed is not UNREAD:
        return call.parsed
    try:
        return read_json(call.body)
    except BadJSON as error:
        raise not_json(error) from None


def not_json(error: BadJSON) -> RefusedCall:
    """Return the refusal of a body that is not JSON."""
    return bad_request(f"the body: {error}", error.field or None, error.allowed)


def object_of(call: Call, example: str) -> dict[str, Any]:
    """Return the JSON object in the body."""
    found = json_of(call)
    if not isinstance(found, dict):
        raise bad_request(f"the body is a JSON object such as {example}", allowed="a JSON object")
    return found


def check_fields(fields: dict[str, Any], known: Collection[str]) -> None:
    """Refuse unknown fields."""
    for name in fields:
        if name not in known:
            raise bad_request(
                f"there is no field {name[:40]!a}; there are: {', '.join(known)}", name[:40], ", ".join(known)
            )
