"""Arguments and schemas that several calls about retained messages have."""

from __future__ import annotations

from holdfast.admin.routing.route import query
from holdfast.admin.routing.schemas import (
    CURSOR as CURSOR_SCHEMA,
)
from holdfast.admin.routing.schemas import (
    FLAG,
    INTEGER,
    MOMENT,
    STRING,
    TIME,
    TOPIC_FILTER,
    nullable,
    record,
    whole,
)

FILTER = query("topic", TOPIC_FILTER, "the Topic Filter; without it, all topics")
CURSOR = query("cursor", CURSOR_SCHEMA, "where to go on: meta.cursor of the answer before")
QUIET = query("quiet", FLAG, "whether present subscribers do not get the change")
PAYLOAD = query("payload", FLAG, "whether payloads of up to 1 MB are shown, in base64")
#: The most bytes of a payload's beginning.
MOST_BEGINNING = 256
BEGINNING = query(
    "beginning", whole(1, MOST_BEGINNING), "how many of the first bytes of each payload are shown, in base64"
)
AT = query("at", MOMENT, "the time as of which; needs the history")

#: a retained message, without its payload
SUMMARY = record(
    {
        "msgid": STRING,
        "topic": STRING,
        "qos": INTEGER,
        "publish_at": TIME,
        "from_clientid": nullable(STRING),
        "from_username": nullable(STRING),
        "size": INTEGER,
        "expiry_at": nullable(TIME),
        "properties": {"type": "object"},
        "revision": STRING,
    }
)
