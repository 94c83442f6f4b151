"""Fields of messages that come from outside: each is taken from an object and checked.

The API, ``holdfast retainer import`` and the pipeline's sink use these rules, so they accept the same messages.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from holdfast.core.strict_json import BadJSON, read_json
from holdfast.core.topics import MOST_LEVELS, InvalidTopicName, check_topic_name, is_of_broker
from holdfast.core.units import LATEST
from holdfast.wire.datatypes import MalformedPacket, ProtocolError, Reception
from holdfast.wire.properties import Properties
from holdfast.wire.property_codec import decode_properties, encode_properties

#: A message may be stored this long (milliseconds) from now. A later time comes from a wrong clock, and the message
#: would prevail over all messages published until that time.
FUTURE = 86_400_000
HIGHEST_REVISION = 2**63 - 1
_LONGEST_STRING = 65_535
_MOST_DIGITS = 19
_LONGEST_NAME_SHOWN = 40
_AS_FROM_CLIENTS = Reception(from_client=True)


class BadRecord(ValueError):
    """An object is not a message. The text says why; ``field`` names the field at fault, if there is one."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(ascii_only(message))
        self.field = field


class Fields:
    """The fields of an object. Each method takes one field and checks it; None counts as absent.

    All methods raise :class:`BadRecord`. Messages show ``prefix`` before the field's name.
    """

    def __init__(self, source: Mapping[str, Any], prefix: str = "") -> None:
        self._prefix = prefix
        self._left = dict(source)

    def has(self, name: str) -> bool:
        """Tell whether the object has a field."""
        return self._left.get(name) is not None

    def topic(self) -> str:
        """Take the Topic Name."""
        topic: str = self.text("topic", required=True)
        try:
            check_topic_name(topic, MOST_LEVELS)
        except InvalidTopicName as error:
            raise self.bad("topic", str(error)) from error
        if is_of_broker(topic):
            raise self.bad("topic", f"those below {topic.partition('/')[0]} are the broker's own")
        return topic

    def qos(self) -> int:
        """Take the QoS, 0 if it is absent."""
        return self.whole("qos", 0, 2) or 0

    def stored_at(self, latest: int) -> int | None:
        """Take the time at which the message was stored, in milliseconds since the epoch, ``latest`` at most."""
        return self.whole("stored_at", 0, latest)

    def expires_at(self) -> int | None:
        """Take the time at which the message expires, in milliseconds since the epoch."""
        return self.whole("expires_at", 0, LATEST)

    def characters(self, name: str, required: bool = False) -> Any:
        """Take a string."""
        value = self._take(name, required)
        if value is not None and not isinstance(value, str):
            raise self.bad(name, "is not a string")
        if value is not None and not _is_unicode(value):
            raise self.bad(name, "is not Unicode text: it has a lone surrogate")
        return value

    def text(self, name: str, required: bool = False) -> Any:
        """Take a UTF-8 Encoded String of MQTT: of limited length, without U+0000."""
        value = self.characters(name, required)
        if value is not None:
            length = len(value.encode())
            if length > _LONGEST_STRING:
                raise self.bad(name, f"has {length} bytes, {_LONGEST_STRING} are allowed")
            if "\0" in value:
                raise self.bad(name, "contains U+0000")
        return value

    def base64(self, name: str, required: bool = False) -> bytes:
        """Take binary data."""
        value = self._take(name, required)
        if not isinstance(value, str):
            raise self.bad(name, "is not a string")
        try:
            return b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self.bad(name, "is not base64") from None

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Take a whole number within limits."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.bad(name, f"is not a whole number from {least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        """Take a flag, false if it is absent."""
        value = self._take(name)
        if value is not None and not isinstance(value, bool):
            raise self.bad(name, "is not true or false")
        return bool(value)

    def revision(self) -> int:
        """Take the revision, a number in a string; 0 if it is absent."""
        value = self._take("revision")
        if value is None:
            return 0
        if not (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
            raise self.bad("revision", "is not a whole number in a string")
        return int(value)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """Take a list of pairs of strings."""
        value = self._take(name)
        if value is None:
            return ()
        pairs = []
        for pair in value if isinstance(value, list) else [None]:
            if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
                raise self.bad(name, "is not a list of pairs of strings")
            pairs.append((pair[0], pair[1]))
        return tuple(pairs)

    def table(self, name: str) -> Fields:
        """Take an object, empty if it is absent."""
        value = self._take(name)
        if value is not None and not isinstance(value, dict):
            raise self.bad(name, "is not a JSON object")
        return Fields(value or {}, f"{name}.")

    def finish(self) -> None:
        """Refuse unknown fields: no code would read them."""
        for name in self._left:
            raise self.bad(name[:_LONGEST_NAME_SHOWN], "there is no such key")

    def bad(self, name: str, problem: str) -> BadRecord:
        """Return the error about a field."""
        return BadRecord(f"{self._prefix}{name}: {problem}", name)

    def _take(self, name: str, required: bool = False) -> Any:
        value = self._left.pop(name, None)
        if value is None and required:
            raise self.bad(name, "is missing")
        return value


def fields_in(source: bytes, prefix: str = "") -> Fields:
    """Return the fields of a JSON object. Raises :class:`BadRecord`."""
    try:
        found = read_json(source)
    except BadJSON as error:
        raise BadRecord(f"{prefix if error.field else ''}{error}", error.field) from error
    return fields_of(found, prefix)


def fields_of(found: object, prefix: str = "") -> Fields:
    """Return the fields of an object that was read from JSON. Raises :class:`BadRecord` if it is something else."""
    if not isinstance(found, dict):
        raise BadRecord("this is not a JSON object")
    return Fields(found, prefix)


def checked_properties(fields: Fields) -> Properties:
    """Return the properties in an object, checked like those of a PUBLISH packet. Raises :class:`BadRecord`."""
    given = Properties(
        payload_format_indicator=fields.whole("payload_format_indicator", 0, 1),
        content_type=fields.text("content_type"),
        response_topic=fields.text("response_topic"),
        correlation_data=fields.base64("correlation_data") if fields.has("correlation_data") else None,
        user_properties=fields.pairs("user_properties"),
    )
    fields.finish()
    try:
        return decode_properties(encode_properties(given), reception=_AS_FROM_CLIENTS)
    except (MalformedPacket, ProtocolError, ValueError) as error:
        raise BadRecord(f"properties: {error}", "properties") from error


def check_payload(payload: bytes) -> None:
    """Raise :class:`BadRecord` for an empty payload: in MQTT it clears the topic."""
    if not payload:
        raise BadRecord("payload: is empty, and an empty payload is not retained", "payload")


def ascii_only(text: str) -> str:
    """Return text that any terminal and any log can show."""
    return text.encode("ascii", "backslashreplace").decode()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
