"""Control characters and non-characters, which a UTF-8 Encoded String should not include [MQTT5-1.5.4]."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    "[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)


def control_character(text: str) -> str | None:
    """Return the first control character or non-character of a text as ``U+001B``, None if it has none.

    Control characters are U+0001 to U+001F and U+007F to U+009F; non-characters are U+FDD0 to U+FDEF and the last two
    of each plane.
    """
    if text.isprintable():  # all of them are unprintable: usual texts cost one call
        return None
    found = _CONTROL.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"
