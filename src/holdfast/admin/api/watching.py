"""The calls about alarms, and about recent figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.arguments import (
    INTEGER,
    NUMBER,
    STRING,
    TIME,
    array,
    choice_of,
    nullable,
    number_of,
    one_of,
    record,
    whole,
)
from holdfast.admin.call import Answer, Call, Scope, answer
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.core.units import date_of
from holdfast.watch.alarms import Alarm, Alarms
from holdfast.watch.ring import Number, Ring

# The calls about alarms: list the active or the past ones, and clear the past ones. Paths and fields are EMQX's.


ALARMS_PATH = "/api/v5/alarms"

_MOST = 10_000
_LIMIT = 100
_ACTIVATED = ("true", "false")
_ALARM = record(
    {
        "name": STRING,
        "severity": one_of("warning", "critical"),
        "message": STRING,
        "details": {"type": "object"},
        "node": STRING,
        "activated_at": TIME,
        "activate_at": TIME,
        "deactivate_at": TIME,
        "duration": {"type": "integer", "description": "milliseconds until its end, or until now"},
    },
    ("name", "severity", "message", "details", "node", "activated_at", "activate_at", "duration"),
)
_META = record({"limit": INTEGER, "count": INTEGER, "hasnext": {"type": "boolean"}})


class AlarmAPI:
    """Answers calls about alarms. ``now`` returns milliseconds since the epoch."""

    def __init__(self, alarms: Alarms, now: Callable[[], int], node: str) -> None:
        self._alarms = alarms
        self._now = now
        self._node = node
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=ALARMS_PATH,
        scope=Scope.READ,
        summary="List the active alarms, the oldest first, or the past alarms, the newest first",
        parameters=(
            query("activated", one_of(*_ACTIVATED), "true: the active alarms; false: the past ones"),
            query("limit", whole(1, _MOST, _LIMIT), "the most alarms in the answer"),
        ),
        answers={200: Content(record({"data": array(_ALARM), "meta": _META}), "the alarms")},
    )
    def list_alarms(self, call: Call) -> Deferred[Answer]:
        """List the alarms."""
        active = choice_of(call.arguments, "activated", _ACTIVATED)
        limit = number_of(call.arguments, "limit", _LIMIT, _MOST)
        found = self._alarms.active if active == "true" else self._alarms.past
        meta = {"limit": limit, "count": len(found), "hasnext": len(found) > limit}
        return succeed(answer({"data": [self._shown(alarm) for alarm in found[:limit]], "meta": meta}))

    @Route(
        method="DELETE",
        path=ALARMS_PATH,
        scope=Scope.ADMIN,
        summary="Forget the past alarms",
        answers={200: Content(record({"count": INTEGER}), "how many there were")},
    )
    def clear(self, _call: Call) -> Deferred[Answer]:
        """Forget the past alarms."""
        count = self._alarms.clear_past()
        return succeed(answer({"count": count}, note={"count": count}))

    def _shown(self, alarm: Alarm) -> dict[str, Any]:
        return alarm_fields(alarm, self._now(), self._node)


def alarm_fields(alarm: Alarm, now: int, node: str) -> dict[str, Any]:
    """Return an alarm as answers show it, and as events tell it. ``now`` is in milliseconds since the epoch."""
    began = date_of(alarm.activated_at)
    fields: dict[str, Any] = {
        "name": alarm.name,
        "severity": alarm.severity.value,
        "message": alarm.message,
        "details": dict(alarm.details),
        "node": node,
        "activated_at": began,
        "activate_at": began,  # EMQX's name
        "duration": (now if alarm.deactivated_at is None else alarm.deactivated_at) - alarm.activated_at,
    }
    if alarm.deactivated_at is not None:
        fields["deactivate_at"] = date_of(alarm.deactivated_at)
    return fields


# The calls about recent figures, for charts. Paths are EMQX's, and names where EMQX has them.


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
