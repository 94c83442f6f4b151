"""How failures of calls about retained messages are told."""

from __future__ import annotations

from twisted.web import http

from holdfast.admin.calls.problems import Refusals, RefusedCall, bad_request
from holdfast.retained.fields import BadRecord
from holdfast.retained.history.moments import HistoryUnavailable
from holdfast.retained.quota.limits import NotRetained


def _bad_record(error: BadRecord) -> RefusedCall:
    return bad_request(str(error), error.field or None)


def _exceeds(error: NotRetained) -> RefusedCall:
    return RefusedCall(http.BAD_REQUEST, "EXCEED_LIMIT", str(error))


def _no_history(error: HistoryUnavailable) -> RefusedCall:
    return RefusedCall(http.BAD_REQUEST, "HISTORY_UNAVAILABLE", str(error))


REFUSALS: Refusals = {BadRecord: _bad_record, NotRetained: _exceeds, HistoryUnavailable: _no_history}
