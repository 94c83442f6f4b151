"""Writing values and keys as TOML, for messages and for the generated files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST = 60


def literal(value: object) -> str:
    """Return a value as TOML. Long strings are cut; tables, and arrays that are long or hold tables, are only named."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "...")
        case int():
            # Python refuses to print integers of thousands of digits, which TOML can hold in hexadecimal.
            return str(value) if value.bit_length() <= 128 else "an integer of more than 128 bits"
        case float():
            return str(value)
        case dict():
            return "a table"
        case []:
            return "[]"
        case list():
            if not value:
                return "[]"
            nested = any(isinstance(item, dict | list) for item in value)
            text = "" if nested else f"[{', '.join(map(literal, value[:_LONGEST]))}]"
            return text if 0 < len(text) <= _LONGEST else "an array"
        case _:  # dates and times
            return str(value)


def written(value: object) -> str:
    """Return a value of an option's description as TOML. A table is written as a whole."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{dotted([key])} = {written(item)}' for key, item in value.items())} }}" if value else "{}"
        )
    return literal(value)


def dotted(path: Iterable[str]) -> str:
    """Return the dotted key of a path, with quotes where TOML needs them."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else _quoted(part) for part in path)


def _quoted(text: str) -> str:
    # JSON escapes fewer characters than TOML has to, and none of those that only a terminal acts on.
    return "".join(map(_escaped, json.dumps(text, ensure_ascii=False)))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"
