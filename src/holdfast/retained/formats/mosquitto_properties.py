"""MQTT properties in the JSON of mosquitto 2.1: a list of objects with an identifier, a value and perhaps a name."""

from __future__ import annotations

import binascii
from base64 import b64encode
from typing import Any

from holdfast.retained.formats.file_entry import properties_json

#: The properties that are kept with a retained message: mosquitto's name and ours.
_KEPT = {
    "payload-format-indicator": "payload_format_indicator",
    "content-type": "content_type",
    "response-topic": "response_topic",
    "correlation-data": "correlation_data",
}
#: Left out: the message has its expiry in a field of its own.
_EXPIRY = "message-expiry-interval"
_PAIR = "user-property"


class BadProperties(ValueError):
    """This is not a list of properties; the text says why."""


def properties_of(listed: Any) -> str | None:
    """Return the column ``properties_json`` of a list of properties. Raises :class:`BadProperties`."""
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise BadProperties("properties: is not a list")
    found: dict[str, Any] = {}
    pairs = []
    for one in listed:
        identifier = one.get("identifier") if isinstance(one, dict) else None
        if identifier == _PAIR:
            pairs.append([one.get("name"), one.get("value")])
        elif identifier in _KEPT:
            found[_KEPT[identifier]] = one.get("value")
        elif identifier != _EXPIRY:
            raise BadProperties(f"properties: {str(identifier)[:40]!a} is not a property of a retained message")
    if "correlation_data" in found:
        found["correlation_data"] = _base64(found["correlation_data"])
    return properties_json({**found, "user_properties": pairs})


def _base64(text: Any) -> str:
    """Convert mosquitto's hexadecimal digits to base64, as in the column ``properties_json``."""
    try:
        return b64encode(binascii.unhexlify(text)).decode()
    except (binascii.Error, TypeError, ValueError):
        raise BadProperties("properties: correlation-data is not in hexadecimal digits") from None
