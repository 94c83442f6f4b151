"""Retained messages as JSON objects: one a line in an export, and as the API shows them."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any

from holdfast.messages import ApplicationMessage, RetainedMessage
from holdfast.retained.store.rows import json_of
from holdfast.retained.store.values import ListedMessage
from holdfast.topics import InvalidTopicName, check_topic_name, is_sys
from holdfast.wire.errors import MalformedPacket, ProtocolError
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties, encode_properties

#: Payloads up to here are shown with a message, as in EMQX.
LARGEST_SHOWN = 1 << 20
_LONGEST_STRING = 65_535
_LATEST = 253_402_300_800_000  # the year 10000, in milliseconds since the epoch
#: A message stored later than this from now (milliseconds) was stamped by a clock that cannot be trusted: it would
#: prevail over everything published until then.
FUTURE = 86_400_000
_MOST_LEVELS = 65_536
_MOST_SECONDS = 0xFFFFFFFF


class BadRecord(ValueError):
    """The JSON is not a message; the text says why."""


def record_of(message: RetainedMessage) -> dict[str, Any]:
    """Return all of a message, so that it can be stored again: see :func:`message_of`."""
    return {
        "topic": message.topic,
        "payload": b64encode(message.payload).decode(),
        "qos": message.qos,
        "properties": properties_of(message.properties),
        "client_id": message.client_id,
        "username": message.username,
        "stored_at": message.stored_at,
        "expires_at": message.expires_at,
        "revision": str(message.revision),
    }


def line_of(message: RetainedMessage) -> bytes:
    """Return the record as a line."""
    return json.dumps(record_of(message), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def summary_of(listed: ListedMessage) -> dict[str, Any]:
    """Return what EMQX shows of a message, and its size, expiry, properties and revision."""
    message = listed.message
    return {
        "msgid": f"{message.revision:016X}",
        "topic": message.topic,
        "qos": message.qos,
        "publish_at": date_of(message.stored_at),
        "from_clientid": message.client_id,
        "from_username": message.username,
        "size": listed.size,
        "expiry_at": None if message.expires_at is None else date_of(message.expires_at),
        "properties": properties_of(message.properties),
        "revision": str(message.revision),
    }


def detail_of(listed: ListedMessage) -> dict[str, Any]:
    """Return the summary and, unless it is too large to be shown, the payload."""
    if listed.size > LARGEST_SHOWN:
        return summary_of(listed)
    return {**summary_of(listed), "payload": b64encode(listed.message.payload).decode()}


def message_of(line: bytes, now: int, latest: int = _LATEST) -> RetainedMessage:
    """Return the message in a line of an export; only topic and payload must be there.

    ``now`` is when it was stored if the line does not tell, ``latest`` when it may have been stored; both in
    milliseconds since the epoch. Raises :class:`BadRecord`.
    """
    record = _Record(line)
    message = RetainedMessage(
        record.topic(),
        record.base64("payload", required=True),
        record.whole("qos", 0, 2) or 0,
        _properties(record.table("properties")),
        record.text("client_id"),
        record.text("username"),
        now if (stored_at := record.whole("stored_at", 0, latest)) is None else stored_at,
        record.whole("expires_at", 0, _LATEST),
        record.revision(),
    )
    record.finish()
    if not message.payload:
        raise BadRecord("payload: is empty, and an empty payload is not retained")
    return message


def request_of(body: bytes, now: int) -> ApplicationMessage:
    """Return the message in a request to retain one, in the form of EMQX's requests to publish one.

    Raises :class:`BadRecord`.
    """
    record = _Record(body)
    topic = record.topic()
    encoding = record.text("payload_encoding") or "plain"
    if encoding == "base64":
        payload = record.base64("payload", required=True)
    elif encoding == "plain":
        payload = str(record.characters("payload", required=True)).encode()
    else:
        raise BadRecord("payload_encoding: is plain or base64")
    qos = record.whole("qos", 0, 2) or 0
    table = record.table("properties")
    expiry = table.whole("message_expiry_interval", 0, _MOST_SECONDS)
    properties = _properties(table)
    record.finish()
    if not payload:
        raise BadRecord("payload: is empty, and an empty payload is not retained")
    expires_at = None if expiry is None else now + 1000 * expiry
    return ApplicationMessage(topic, payload, qos, True, properties=properties, expires_at=expires_at)


def properties_of(properties: Properties) -> dict[str, Any]:
    """Return properties as JSON has them."""
    shown: dict[str, Any] = {} if properties is NO_PROPERTIES else json.loads(json_of(properties))
    return shown


def _properties(table: _Record) -> Properties:
    """Return the properties in a JSON object, checked as those of a PUBLISH packet are."""
    given = Properties(
        payload_format_indicator=table.whole("payload_format_indicator", 0, 1),
        content_type=table.text("content_type"),
        response_topic=table.text("response_topic"),
        correlation_data=table.base64("correlation_data") if table.has("correlation_data") else None,
        user_properties=table.pairs("user_properties"),
    )
    table.finish()
    try:
        return decode_properties(encode_properties(given))
    except (MalformedPacket, ProtocolError, ValueError) as error:
        raise BadRecord(f"properties: {error}") from error


def properties_in(text: str) -> Properties:
    """Return the properties in a JSON object, as :func:`properties_of` makes it. Raises :class:`BadRecord`."""
    return _properties(_Record(text.encode(errors="surrogatepass"), "properties."))


def date_of(milliseconds: int) -> str:
    """Return a time in RFC 3339, as far as calendars go."""
    moment = datetime.fromtimestamp(min(milliseconds, _LATEST - 1) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Record:
    """A JSON object whose values are taken out one by one, each checked; what is left in the end is unknown."""

    def __init__(self, source: bytes | dict[str, Any], place: str = "") -> None:
        self._place = place
        if isinstance(source, bytes):
            try:
                source = json.loads(source)
            except (ValueError, RecursionError) as error:
                raise BadRecord(f"this is not JSON: {str(error)[:100]}") from error
        if not isinstance(source, dict):
            raise BadRecord("this is not a JSON object")
        self._left = source

    def has(self, name: str) -> bool:
        """Tell whether there is a value."""
        return self._left.get(name) is not None

    def topic(self) -> str:
        """Take the Topic Name."""
        topic: str = self.text("topic", required=True)
        try:
            check_topic_name(topic, _MOST_LEVELS)
        except InvalidTopicName as error:
            raise BadRecord(f"topic: {error}") from error
        if is_sys(topic):
            raise BadRecord("topic: those below $SYS are the broker's own")
        return topic

    def characters(self, name: str, required: bool = False) -> Any:
        """Take a string, None if it is not there."""
        value = self._take(name, required)
        if value is not None and not isinstance(value, str):
            raise self._bad(name, "is not a string")
        if value is not None and not _is_unicode(value):
            raise self._bad(name, "is not Unicode text: a surrogate stands alone")
        return value

    def text(self, name: str, required: bool = False) -> Any:
        """Take a string as MQTT has them, None if it is not there: without U+0000, and of limited length."""
        value = self.characters(name, required)
        if value is not None:
            length = len(value.encode())
            if length > _LONGEST_STRING:
                raise self._bad(name, f"has {length} bytes, {_LONGEST_STRING} are allowed")
            if "\0" in value:
                raise self._bad(name, "contains U+0000")
        return value

    def base64(self, name: str, required: bool = False) -> bytes:
        """Take binary data."""
        value = self._take(name, required)
        if not isinstance(value, str):
            raise self._bad(name, "is not a string")
        try:
            return b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self._bad(name, "is not base64") from None

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Take a whole number within limits."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._bad(name, f"is not a whole number from {least} to {most}")
        return value

    def revision(self) -> int:
        """Take the revision, a number in a string; 0 if there is none."""
        value = self._take("revision")
        if value is None:
            return 0
        if not (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20):
            raise self._bad("revision", "is not a whole number in a string")
        return int(value)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """Take a list of pairs of strings."""
        value = self._take(name)
        if value is None:
            return ()
        pairs = []
        for pair in value if isinstance(value, list) else [None]:
            if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
                raise self._bad(name, "is not a list of pairs of strings")
            pairs.append((pair[0], pair[1]))
        return tuple(pairs)

    def table(self, name: str) -> _Record:
        """Take an object, empty if there is none."""
        value = self._take(name)
        if value is not None and not isinstance(value, dict):
            raise self._bad(name, "is not a JSON object")
        return _Record(value or {}, f"{name}.")

    def finish(self) -> None:
        """Refuse what has not been taken: it would be lost."""
        for name in self._left:
            raise self._bad(name[:40], "there is no such key")

    def _take(self, name: str, required: bool = False) -> Any:
        value = self._left.pop(name, None)
        if value is None and required:
            raise self._bad(name, "is missing")
        return value

    def _bad(self, name: str, what: str) -> BadRecord:
        return BadRecord(ascii_only(f"{self._place}{name}: {what}"))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ascii_only(text: str) -> str:
    """Return text that any terminal and log takes."""
    return text.encode("ascii", "backslashreplace").decode()
