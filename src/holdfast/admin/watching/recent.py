"""The calls about recent figures, for charts. Paths are EMQX's, and names where EMQX has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.arguments import number_of
from holdfast.admin.calls.call import Answer, Call, answer
from holdfast.admin.routing.route import Content, Route, query
from holdfast.admin.routing.schemas import NUMBER, array, nullable, record, whole
from holdfast.metrics.ring import Number, Ring

MONITOR_PATH, CURRENT_PATH = "/api/v5/monitor", "/api/v5/monitor_current"

#: records of one piece of an answer
_RECORDS = 25
#: the seconds that are shown by default
_DEFAULT = 300


class RecentAPI:
    """Answers with the records of the ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        numbers: dict[str, Any] = {name: nullable(NUMBER) for name in ring.names}
        one = record({"time_stamp": NUMBER, **numbers})
        self.routes = (
            Route(
                method="GET",
                path=MONITOR_PATH,
                handler=self.latest,
                scope=Scope.READ,
                summary="Show recent figures, the oldest first: of each second for 5 minutes, of each 10 s for an hour,"
                " of each minute for a day. time_stamp: milliseconds since 1970; rates: per second; null: unknown",
                parameters=(query("latest", whole(1, ring.reach, _DEFAULT), "how many seconds to show"),),
                answers={200: Content(array(one), "the figures")},
            ),
            Route(
                method="GET",
                path=CURRENT_PATH,
                handler=self.current,
                scope=Scope.READ,
                summary="Show the figures of the last second",
                answers={200: Content(record({"time_stamp": nullable(NUMBER), **numbers}), "the figures")},
            ),
        )

    def latest(self, call: Call) -> Deferred[Answer]:
        """Show the latest records."""
        seconds = number_of(call.arguments, "latest", _DEFAULT, self._ring.reach)
        pieces = _pieces(self._ring.latest(seconds))
        return succeed(Answer(more=lambda: succeed(next(pieces, b""))))

    def current(self, _call: Call) -> Deferred[Answer]:
        """Show the last record."""
        return succeed(answer(self._ring.current()))


def _pieces(records: Iterator[dict[str, Number]]) -> Iterator[bytes]:
    """Yield a list of records as JSON, in pieces that take a millisecond each."""
    mark = b"["
    while piece := tuple(islice(records, _RECORDS)):
        yield mark + b",".join(json.dumps(record).encode() for record in piece)
        mark = b","
    yield b"[]\n" if mark == b"[" else b"]\n"
