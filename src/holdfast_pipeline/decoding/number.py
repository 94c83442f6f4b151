"""The decoder of plain numbers and switches: ``21.5``, ``-3e2``, ``ON``, ``false``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast_pipeline.decoding.decoder import BadPayload, Decoder
from holdfast_pipeline.formatting import visible

# float() also accepts 1_000, nan, infinity, and the digits of every script.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_COMMAS = re.compile(r"[+-]?[0-9.' ]*[0-9](?:,[0-9]+)+(?:\.[0-9]+)?\Z")
_WORDS = {"on": True, "true": True, "off": False, "false": False}
#: The most bytes of a number.
_LONGEST = 64


class NumberDecoder(Decoder):
    """Decodes one number, or ON, OFF, TRUE or FALSE in any case: these are 1 or 0, and a ``state``."""

    schema = "value double NOT NULL, state boolean"

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the one row. Raises :class:`BadPayload`."""
        text = _text(payload)
        state = _WORDS.get(text.lower())
        return [{"value": number(text) if state is None else float(state), "state": state}]


def number(text: str) -> float:
    """Return the number in a text. Raises :class:`BadPayload` for another text, and for an ambiguous number."""
    if not _NUMBER.match(text):
        if _COMMAS.match(text):
            raise BadPayload(f"{text!r} has a comma, which may or may not be a decimal point; write numbers like 21.5")
        raise BadPayload(f"'{visible(text)}' is not a number such as 21.5, and not ON, OFF, TRUE or FALSE")
    value = float(text)
    if math.isinf(value):
        raise BadPayload(f"{text} is too large for a double")
    return value


def _text(payload: bytes) -> str:
    if len(payload) > _LONGEST:
        raise BadPayload(f"{len(payload)} bytes are too many for a number; at most {_LONGEST} are allowed")
    try:
        text = payload.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise BadPayload("this is not text in UTF-8") from error
    if not text:
        raise BadPayload("this is blank")
    return text
