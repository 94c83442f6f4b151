"""The API about bridges to other brokers: their states, and pausing and resuming them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.arguments import INTEGER, STRING, array, nullable, one_of, record
from holdfast.admin.call import Answer, Call, Scope, answer, not_found
from holdfast.admin.routing import Content, Route, in_path, routes_of

BRIDGES_PATH = "/api/v5/bridges"

_STATES = ("waiting", "connecting", "entering", "connected", "paused", "stopped")
_COUNTS = dict.fromkeys(("sent", "received", "refused", "looped", "left_out"), INTEGER)
_BRIDGE = record({
    "name": STRING, "state": one_of(*_STATES), "address": nullable(STRING), "problem": STRING, "clientid": STRING,
    "proto_ver": INTEGER, "queued": INTEGER, "inflight": INTEGER, "messages": record(_COUNTS),
})  # fmt: skip
_NAME = in_path("name", STRING, "the name of the bridge in the configuration")


class BridgeCalls(Protocol):
    """The bridges. :meth:`pause`, :meth:`resume` and :meth:`shown` raise LookupError for an unknown name."""

    def all_shown(self) -> Sequence[Mapping[str, Any]]:
        """Return the fields of all bridges."""

    def shown(self, name: str) -> Mapping[str, Any]:
        """Return the fields of one bridge."""

    def pause(self, name: str) -> None:
        """Disconnect a bridge until it is resumed."""

    def resume(self, name: str) -> None:
        """Connect a bridge now."""


class BridgeAPI:
    """Lists, pauses and resumes bridges."""

    def __init__(self, bridges: BridgeCalls) -> None:
        self._bridges = bridges
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=BRIDGES_PATH,
        scope=Scope.READ,
        summary="List the bridges with their states",
        answers={200: Content(record({"data": array(_BRIDGE)}), "the bridges")},
    )
    def list_bridges(self, _call: Call) -> Deferred[Answer]:
        """List the bridges."""
        return succeed(answer({"data": [dict(each) for each in self._bridges.all_shown()]}))

    @Route(
        method="POST",
        path=f"{BRIDGES_PATH}/{{name}}/pause",
        scope=Scope.ADMIN,
        summary="Disconnect a bridge until it is resumed, or the broker starts anew; its messages wait",
        parameters=(_NAME,),
        answers={200: Content(_BRIDGE, "the bridge")},
    )
    def pause(self, call: Call) -> Deferred[Answer]:
        """Pause a bridge."""
        return succeed(self._changed(call, self._bridges.pause))

    @Route(
        method="POST",
        path=f"{BRIDGES_PATH}/{{name}}/resume",
        scope=Scope.ADMIN,
        summary="Connect a paused bridge, and at once one that waits before its next attempt",
        parameters=(_NAME,),
        answers={200: Content(_BRIDGE, "the bridge")},
    )
    def resume(self, call: Call) -> Deferred[Answer]:
        """Resume a bridge."""
        return succeed(self._changed(call, self._bridges.resume))

    def _changed(self, call: Call, change: Callable[[str], None]) -> Answer:
        name = call.arguments["name"]
        try:
            change(name)
            shown = dict(self._bridges.shown(name))
        except LookupError:
            raise not_found(f"no bridge is named {name[:200]}") from None
        return answer(shown, note=shown)
