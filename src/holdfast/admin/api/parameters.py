"""Arguments and schemas that several calls about retained messages have."""

from __future__ import annotations

from http import HTTPStatus

from twisted.web import http

from holdfast.admin.arguments import (
    CURSOR_SCHEMA,
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
from holdfast.admin.call import Refusals, RefusedCall, bad_request, not_found
from holdfast.admin.routing import query
from holdfast.changes.history import NoSuchRevision
from holdfast.changes.moments import BaselineUnfinished, HistoryUnavailable
from holdfast.retained.fields import BadRecord
from holdfast.retained.limits import NotRetained
from holdfast.scheduling.fair_line import LineFull

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


# How failures of calls about retained messages are told.


def _bad_record(error: BadRecord) -> RefusedCall:
    return bad_request(str(error), error.field or None)


def _exceeds(error: NotRetained) -> RefusedCall:
    return RefusedCall(http.BAD_REQUEST, "EXCEED_LIMIT", str(error))


def _no_history(error: HistoryUnavailable) -> RefusedCall:
    return RefusedCall(http.BAD_REQUEST, "HISTORY_UNAVAILABLE", str(error))


def _no_baseline(error: BaselineUnfinished) -> RefusedCall:
    return RefusedCall(http.CONFLICT, "HISTORY_UNAVAILABLE", str(error))


def _no_revision(error: NoSuchRevision) -> RefusedCall:
    return not_found(str(error))


def _too_many(error: LineFull) -> RefusedCall:
    return RefusedCall(HTTPStatus.TOO_MANY_REQUESTS, "TOO_MANY_SCANS", str(error), (("Retry-After", "1"),))


REFUSALS: Refusals = {
    BadRecord: _bad_record,
    NotRetained: _exceeds,
    BaselineUnfinished: _no_baseline,  # before its base class: the first that fits counts
    HistoryUnavailable: _no_history,
    NoSuchRevision: _no_revision,
    LineFull: _too_many,
}
