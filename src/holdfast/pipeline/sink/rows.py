"""From what is given of a message to the row that is stored, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holdfast.messages import RetainedChange, RetainedMessage
from holdfast.retained.records import FUTURE, BadRecord, ascii_only, properties_in
from holdfast.retained.store.rows import Row, row_of
from holdfast.topics import InvalidTopicName, check_topic_name, is_sys
from holdfast.wire.properties import NO_PROPERTIES, Properties

#: What may be given of a message; all but the first two have defaults.
FIELDS = (
    "topic", "payload", "qos", "client_id", "username", "stored_at", "expires_at", "properties_json", "revision",
)  # fmt: skip
_LATEST = 253_402_300_800_000  # the year 10000
_MOST_LEVELS = 65_536
_LONGEST_STRING = 65_535
_HIGHEST_REVISION = 2**63 - 1


class Unfit(ValueError):
    """What is given is not a message that can be retained. ``kind`` is the reason in a word, the text says more."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(ascii_only(why))
        self.kind = kind


def ready(given: Mapping[str, Any], now: int) -> Row:
    """Return the row of a message, under the revision it is given with (0 for none).

    Times are in milliseconds since the epoch; ``now`` is when it was stored if that is not given. Raises
    :class:`Unfit`.
    """
    topic = _topic(given.get("topic"))
    payload = given.get("payload")
    if isinstance(payload, str):
        payload = payload.encode(errors="surrogatepass")
    if not isinstance(payload, (bytes, bytearray)) or not payload:
        raise Unfit("payload", "payload: is empty, and an empty payload is not retained")
    stored_at = _whole(given, "stored_at", "date", 0, now + FUTURE)
    message = RetainedMessage(
        topic,
        bytes(payload),
        _whole(given, "qos", "qos", 0, 2) or 0,
        _properties(given.get("properties_json")),
        _text(given, "client_id"),
        _text(given, "username"),
        now if stored_at is None else stored_at,
        _whole(given, "expires_at", "date", 0, _LATEST),
        _whole(given, "revision", "revision", 0, _HIGHEST_REVISION) or 0,
    )
    change = RetainedChange(topic, message.revision, message.stored_at, message, message.client_id, message.username)
    try:
        return row_of(change)
    except ValueError as error:
        raise Unfit("topic", f"topic: {error}") from error


def _topic(topic: Any) -> str:
    if not isinstance(topic, str):
        raise Unfit("topic", "topic: is missing")
    try:
        check_topic_name(topic, _MOST_LEVELS)
        topic.encode()
    except UnicodeEncodeError:
        raise Unfit("topic", "topic: is not Unicode text: a surrogate stands alone") from None
    except InvalidTopicName as error:
        raise Unfit("topic", f"topic: {error}") from None
    if is_sys(topic):
        raise Unfit("topic", "topic: those below $SYS are the broker's own")
    return topic


def _whole(given: Mapping[str, Any], name: str, kind: str, least: int, most: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Unfit(kind, f"{name}: {value!r} is not a whole number from {least} to {most}")
    return value


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    try:
        fits = isinstance(value, str) and "\0" not in value and len(value.encode()) <= _LONGEST_STRING
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise Unfit(
            name, f"{name}: is not a string as MQTT has them: of at most {_LONGEST_STRING} bytes, without U+0000"
        )
    return str(value)


@lru_cache(maxsize=1024)
def _properties(text: str | None) -> Properties:
    if not text:
        return NO_PROPERTIES
    try:
        return properties_in(text)
    except BadRecord as error:
        raise Unfit("properties", str(error)) from error
