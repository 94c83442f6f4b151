"""How failures of calls about retained messages are told."""

from __future__ import annotations

from http import HTTPStatus

from twisted.web import http

from holdfast.admin.calls.problems import Refusals, RefusedCall, bad_request, not_found
from holdfast.retained.fields import BadRecord
from holdfast.retained.history.moments import BaselineUnfinished, HistoryUnavailable
from holdfast.retained.history.revisions import NoSuchRevision
from holdfast.retained.queries.scan_places import TooManyScans
from holdfast.retained.quota.limits import NotRetained


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


def _too_many(error: TooManyScans) -> RefusedCall:
    return RefusedCall(HTTPStatus.TOO_MANY_REQUESTS, "TOO_MANY_SCANS", str(error), (("Retry-After", "1"),))


REFUSALS: Refusals = {
    BadRecord: _bad_record,
    NotRetained: _exceeds,
    BaselineUnfinished: _no_baseline,  # before its base class: the first that fits counts
    HistoryUnavailable: _no_history,
    NoSuchRevision: _no_revision,
    TooManyScans: _too_many,
}
