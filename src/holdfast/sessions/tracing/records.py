"""Packets as JSON objects, with the standard's field names: without passwords, and with the beginning of payloads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from attrs import NOTHING, Factory, fields, has

from holdfast.wire.packets import Packet, Pubacks
from holdfast.wire.reasons import ReasonCode

#: what is written for a secret that is there
HIDDEN = "***"
_SECRETS = frozenset({"password", "authentication_data"})
#: the most entries of a list: Topic Filters, Reason Codes, User Properties
MOST_ENTRIES = 100
#: the most characters of a text, such as a topic
LONGEST_TEXT = 1000


def record_of(packet: Packet, payload_bytes: int) -> dict[str, Any]:
    """Return a packet as a JSON object, with so many bytes of each payload.

    Fields with their usual value are left out.
    """
    name = type(packet).__name__.upper()
    if isinstance(packet, Pubacks):
        return {"packet": "PUBACK", "count": packet.count}
    return {"packet": name, **_fields(packet, payload_bytes)}


@lru_cache(maxsize=64)
def _usual(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names of the fields, and their usual values."""
    return tuple(
        (each.name, each.default.factory() if isinstance(each.default, Factory) else each.default)  # type: ignore[arg-type]  # attrs types it as a function
        for each in fields(kind)
    )


def _fields(value: Any, payload_bytes: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, usual in _usual(cast("Any", type(value))):
        content = getattr(value, name)
        if usual is not NOTHING and content == usual:
            continue
        if name in _SECRETS:
            shown[name] = HIDDEN
        elif name == "payload":
            shown["size"] = len(content)
            if payload_bytes:
                shown["payload"] = content[:payload_bytes].decode("utf-8", "backslashreplace")
        elif name == "reason_code":
            shown[name] = _reason(content)
        else:
            shown[name] = _plain(content, payload_bytes)
    return shown


def _plain(value: Any, payload_bytes: int) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[:payload_bytes]).hex()
    if has(type(value)):
        return _fields(value, payload_bytes)
    if isinstance(value, Mapping):
        return {str(name): _plain(each, payload_bytes) for name, each in list(value.items())[:MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [_plain(each, payload_bytes) for each in value[:MOST_ENTRIES]]
    return str(value)[:LONGEST_TEXT]


def _reason(code: int) -> str:
    """Return a Reason Code as the standard writes it, such as 0x87, with its name if it has one."""
    try:
        return f"0x{code:02x} {ReasonCode(code).name}"
    except ValueError:
        return f"0x{code:02x}"
