"""The call that streams events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime

from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.arguments import flag_of, optional_filter_of
from holdfast.admin.calls.call import Answer, Call
from holdfast.admin.calls.problems import RefusedCall, bad_request
from holdfast.admin.events.happenings import Happenings
from holdfast.admin.events.lines import CONTENT_TYPE
from holdfast.admin.events.stream import EventStream
from holdfast.admin.routing.route import Content, Route, query
from holdfast.admin.routing.schemas import FLAG, STRING, TOPIC_FILTER
from holdfast.retained.changes.interfaces import IChangesSince
from holdfast.retained.changes.token import LONGEST_TOKEN, BadToken, place_of

EVENTS_PATH = "/events"
#: The streams of one caller, and of all.
MOST_OF_ONE, MOST = 16, 64
_TOO_MANY = 429
#: By argument, the name of its events.
_KINDS = {"clients": "client", "replays": "replay", "alarms": "alarm", "monitor": "monitor"}


class EventCalls:
    """Answers with streams of events, a bounded number at a time."""

    def __init__(
        self,
        changes: IChangesSince,
        happenings: Happenings,
        clock: IReactorTime,
        most_of_one: int = MOST_OF_ONE,
        most: int = MOST,
    ) -> None:
        self._changes = changes
        self._happenings = happenings
        self._clock = clock
        self._most_of_one = most_of_one
        self._most = most
        self._open: Counter[str] = Counter()
        self.routes = (
            Route(
                method="GET",
                path=EVENTS_PATH,
                handler=self.events,
                scope=Scope.READ,
                summary="Follow changes in an endless stream of server-sent events",
                parameters=(
                    query("retained", TOPIC_FILTER, "changes of the retained messages that match this Topic Filter"),
                    query("token", {**STRING, "maxLength": LONGEST_TOKEN}, "all changes since meta.token of a list"),
                    query("clients", FLAG, "clients that connect, disconnect and are refused"),
                    query("replays", FLAG, "replays that begin, go on and end"),
                    query("alarms", FLAG, "alarms that begin and end"),
                    query("monitor", FLAG, "the newest figures, each second"),
                ),
                answers={200: Content(STRING, "the events", CONTENT_TYPE)},
                has_deadline=False,
            ),
        )

    @property
    def open(self) -> int:
        """The number of streams."""
        return self._open.total()

    @inlineCallbacks
    def events(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Begin a stream."""
        arguments = call.arguments
        kinds = frozenset(kind for name, kind in _KINDS.items() if flag_of(arguments, name))
        topic_filter = optional_filter_of(arguments, "retained")
        token = arguments.get("token")
        if token is not None:
            if topic_filter is None:
                raise bad_request("token is only allowed together with retained", "token", "nothing without retained")
            try:
                place_of(token)
            except BadToken as error:
                raise bad_request(f"token: {error}", "token", "meta.token of a list, or the id of an event") from None
        if topic_filter is None and not kinds:
            names = ", ".join(("retained", *_KINDS))
            raise bad_request(f"name at least one of {names}", "retained", f"at least one of {names}")
        stream = self._new_stream(call, kinds)
        if topic_filter is not None:
            try:
                # After a loss of its connection, a browser repeats the address and tells the last identifier.
                since = (call.head.last_event if call.head is not None else None) or token
                follower = yield self._changes.follow(topic_filter, since, stream.news)
            except BaseException:
                stream.stop()
                raise
            stream.follow(follower)
        return Answer(
            content_type=CONTENT_TYPE,
            headers=(("X-Accel-Buffering", "no"),),  # nginx would gather the events
            more=stream.more,
            stopped=stream.stop,
        )

    def _new_stream(self, call: Call, kinds: frozenset[str]) -> EventStream:
        who = str(call.caller)
        for count, most, whose in (
            (self._open[who], self._most_of_one, f"of {who}"),
            (self.open, self._most, "in all"),
        ):
            if count >= most:
                raise RefusedCall(
                    _TOO_MANY, "TOO_MANY_STREAMS", f"there are {most} streams of events {whose} already; close one",
                    (("Retry-After", "10"),), allowed=f"{most} streams",
                )  # fmt: skip

        def stopped() -> None:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

        self._open[who] += 1
        return EventStream(self._clock, self._happenings, kinds, stopped)
