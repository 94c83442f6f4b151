"""The call that traces one client: ``GET /api/v5/trace`` answers with a line for each packet."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.broker.paths import TRACE_PATH
from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.arguments import number_of
from holdfast.admin.calls.call import NDJSON, Answer, Call
from holdfast.admin.calls.problems import RefusedCall, bad_request
from holdfast.admin.routing.route import Content, Route, query
from holdfast.admin.routing.schemas import ANYTHING, STRING, whole

#: seconds
LONGEST_TRACE = 24 * 3600
USUAL_TRACE = 300
#: bytes of each payload
MOST_PAYLOAD, USUAL_PAYLOAD = 65_536, 128


class ITrace(Protocol):
    """One trace."""

    def more(self) -> Deferred[bytes]:
        """Fire with the next lines; with b"" when the trace is over."""


class ITraces(Protocol):
    """Begins and ends traces."""

    def begin(self, client_id: str, seconds: float, payload_bytes: int) -> ITrace:
        """Trace a client for so many seconds."""

    def end(self, client_id: str, trace: Any) -> None:
        """End a trace, if it is not over."""


class TraceAPI:
    """Traces clients. ``cannot`` is raised for a trace that cannot begin."""

    def __init__(self, traces: ITraces, cannot: type[Exception]) -> None:
        self._traces = traces
        self._cannot = cannot
        self.routes = (
            Route(
                method="GET",
                path=TRACE_PATH,
                handler=self.trace,
                scope=Scope.ADMIN,
                summary="Follow the packets that one client sends and gets",
                parameters=(
                    query("clientid", {**STRING, "minLength": 1}, "the Client Identifier", required=True),
                    query("seconds", whole(1, LONGEST_TRACE, USUAL_TRACE), "how long the trace runs"),
                    query("payload_bytes", whole(0, MOST_PAYLOAD, USUAL_PAYLOAD), "how much of each payload is shown"),
                ),
                answers={200: Content(ANYTHING, "a JSON object a line; empty lines keep the connection", NDJSON)},
                has_deadline=False,
            ),
        )

    def trace(self, call: Call) -> Deferred[Answer]:
        """Answer with the lines of a trace. It ends after its time, or when the caller leaves."""
        client_id = call.arguments["clientid"]
        if not client_id:
            raise bad_request("clientid is empty", "clientid", "a Client Identifier")
        seconds = number_of(call.arguments, "seconds", USUAL_TRACE, LONGEST_TRACE)
        shown = call.arguments.get("payload_bytes", str(USUAL_PAYLOAD))
        payload_bytes = 0 if shown == "0" else number_of(call.arguments, "payload_bytes", USUAL_PAYLOAD, MOST_PAYLOAD)
        try:
            trace = self._traces.begin(client_id, seconds, payload_bytes)
        except self._cannot as error:
            raise RefusedCall(http.CONFLICT, "CONFLICT", str(error)) from None
        return succeed(Answer(content_type=NDJSON, more=trace.more, stopped=lambda: self._traces.end(client_id, trace)))
