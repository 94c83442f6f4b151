"""Calls about replays: list and end the running ones, show and change the settings of their speed."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.settings import Settings
from holdfast.admin.arguments import BOOLEAN, INTEGER, NUMBER, STRING, array, digits_of, nullable, record
from holdfast.admin.call import DONE, Answer, Call, Scope, answer, bad_request, not_found
from holdfast.admin.routing import NOTHING, Content, Route, in_path, query, routes_of
from holdfast.replay.interfaces import ReplayState, ReplayStatus
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.totals import TotalsReader

_SETTINGS = record({"until_restart": array(STRING)})
_REPLAY = record(
    {
        "id": INTEGER,
        "clientid": STRING,
        "topic": STRING,
        "sent": INTEGER,
        "pending": INTEGER,
        "cursor": nullable(STRING),
        "state": STRING,
        "throttled": BOOLEAN,
        "age": NUMBER,
        "rate": NUMBER,
        "total": nullable(INTEGER),
    }
)


class ReplayCalls:
    """Answers calls about replays and settings."""

    def __init__(self, totals: TotalsReader, replays: ReplayRegistry, settings: Settings) -> None:
        self._totals = totals
        self._replays = replays
        self._settings = settings
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=API_PREFIX,
        scope=Scope.READ,
        summary="Show the retainer's configuration, and the keys that differ from the file",
        answers={200: Content(_SETTINGS, "the configuration")},
    )
    def config(self, _call: Call) -> Deferred[Answer]:
        """Show the configuration."""
        return succeed(answer(self._settings.shown()))

    @Route(
        method="PUT",
        path=API_PREFIX,
        scope=Scope.ADMIN,
        summary="Change the configuration until the broker ends",
        body=Content({"type": "object"}, "the keys that change"),
        answers={200: Content(_SETTINGS, "the configuration")},
    )
    def configure(self, call: Call) -> Deferred[Answer]:
        """Change the configuration, until the broker ends, and show it."""
        return succeed(answer(self._settings.change(call.body)))

    @Route(
        method="GET",
        path=f"{API_PREFIX}/replays",
        scope=Scope.READ,
        summary="List the running replays, the oldest first",
        answers={200: Content(record({"data": array(_REPLAY)}), "the replays")},
    )
    def replays(self, _call: Call) -> Deferred[Answer]:
        """List the running replays, the oldest first."""
        count = self._totals.refreshed().count
        return succeed(answer({"data": [_record_of(status, count) for status in self._replays.statuses()]}))

    @Route(
        method="DELETE",
        path=f"{API_PREFIX}/replay",
        scope=Scope.ADMIN,
        summary="End a replay and its Network Connection",
        parameters=(query("id", STRING, "the number of the replay", required=True),),
        answers={204: NOTHING},
    )
    @Route(
        method="DELETE",
        path=f"{API_PREFIX}/replay/{{id}}",
        scope=Scope.ADMIN,
        summary="End a replay and its Network Connection",
        parameters=(in_path("id", STRING, "the number of the replay", rest=True),),
        answers={204: NOTHING},
    )
    def cancel(self, call: Call) -> Deferred[Answer]:
        """End a replay, and the Network Connection with it."""
        number = digits_of(call.arguments.get("id", ""))
        if number is None:
            raise bad_request("id is the number of a replay, as listed by GET /replays", "id", "the number of a replay")
        if not self._replays.cancel(number):
            raise not_found(f"there is no replay {number}; it may have ended")
        return succeed(DONE)


def _record_of(status: ReplayStatus, count: int) -> dict[str, Any]:
    """Return a replay as JSON; ``count`` is the number of all retained messages.

    The ``rate`` is the average since the beginning, in messages a second. The ``total`` is known for the Topic Filter
    ``#`` only, and includes messages that the client may not receive.
    """
    return {
        "id": status.number,
        "clientid": status.client_id,
        "topic": status.topic_filter,
        "sent": status.delivered,
        "pending": status.held,
        "cursor": status.cursor,
        "state": status.state.name.lower(),
        "throttled": status.state is ReplayState.THROTTLED,
        "age": round(status.age, 3),
        "rate": round(status.delivered / status.age, 1) if status.age > 0 else 0.0,
        "total": count if status.topic_filter == "#" else None,
    }
