"""Control characters and non-characters."""

from __future__ import annotations

import unicodedata

from holdfast.wire.datatypes import control_character


def test_exactly_the_control_characters_and_the_non_characters_are_found() -> None:
    """U+0001 to U+001F, U+007F to U+009F, U+FDD0 to U+FDEF, and the last two of all 17 planes."""
    found = {code for code in range(1, 0x110000) if control_character(f"a{chr(code)}") is not None}
    controls = {code for code in range(1, 0x110000) if unicodedata.category(chr(code)) == "Cc"}
    planes = {plane << 16 | end for plane in range(17) for end in (0xFFFE, 0xFFFF)}
    assert found == controls | set(range(0xFDD0, 0xFDF0)) | planes
    assert control_character("a\x1b[2J") == "U+001B"
