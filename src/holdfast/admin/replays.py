"""Calls about replays: list and end the running ones, show and change the settings of their speed."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.arguments import digits_of
from holdfast.admin.calls import DONE, Answer, Call, Routes, answer, bad_request, not_found
from holdfast.admin.settings import Settings
from holdfast.retained.replay.status import ReplayState, ReplayStatus
from holdfast.retained.service import RetainedMessages


class ReplayCalls:
    """Answers calls about replays and settings."""

    def __init__(self, retained: RetainedMessages, settings: Settings) -> None:
        self._retained = retained
        self._settings = settings
        self.routes: Routes = {
            "": {"GET": (self.config, ()), "PUT": (self.configure, ())},
            "/replays": {"GET": (self.replays, ())},
            "/replay": {"DELETE": (self.cancel, ("id",))},
        }

    def config(self, _call: Call) -> Deferred[Answer]:
        """Show the configuration."""
        return succeed(answer(self._settings.shown()))

    def configure(self, call: Call) -> Deferred[Answer]:
        """Change the configuration, until the broker ends, and show it."""
        return succeed(answer(self._settings.change(call.body)))

    def replays(self, _call: Call) -> Deferred[Answer]:
        """List the running replays, the oldest first."""
        return succeed(answer({"data": [_record_of(status) for status in self._retained.replays.statuses()]}))

    def cancel(self, call: Call) -> Deferred[Answer]:
        """End a replay, and the Network Connection with it."""
        number = digits_of(call.arguments.get("id", ""))
        if number is None:
            raise bad_request("id is the number of a replay, as listed by GET /replays")
        if not self._retained.replays.cancel(number):
            raise not_found(f"there is no replay {number}; it may be over")
        return succeed(DONE)


def _record_of(status: ReplayStatus) -> dict[str, Any]:
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
    }
