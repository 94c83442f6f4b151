"""Calls that show listeners, nodes and counts of this broker. Paths and fields are EMQX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.arguments import flag_of
from holdfast.admin.calls.call import Answer, Call, answer
from holdfast.admin.calls.problems import not_found
from holdfast.admin.routing.route import Content, Route, in_path, query
from holdfast.admin.routing.schemas import ANYTHING, BOOLEAN, FLAG, INTEGER, NUMBER, STRING, array, record

_LISTENER = record(
    {
        "id": STRING,
        "name": STRING,
        "type": {"type": "string", "enum": ["tcp", "ssl", "ws", "wss"]},
        "bind": STRING,
        "tls": BOOLEAN,
        "zone": STRING,
        "running": BOOLEAN,
        "status": record(
            {
                "running": BOOLEAN,
                "current_connections": INTEGER,
                "max_connections": {"description": 'a number, or "infinity"', "type": ["integer", "string"]},
            }
        ),
    }
)
_NODE = record(
    {
        "node": STRING, "node_status": STRING, "version": STRING, "uptime": INTEGER, "connections": INTEGER,
        "live_connections": INTEGER, "memory_used": INTEGER, "memory_total": INTEGER, "max_fds": INTEGER,
        "load1": NUMBER, "load5": NUMBER, "load15": NUMBER, "cluster_sessions": INTEGER,
    },
    required=("node", "node_status", "version", "uptime", "connections", "live_connections"),
)  # fmt: skip


class IOverview(Protocol):
    """The state of the broker, as values for JSON."""

    def listeners(self) -> Sequence[Mapping[str, Any]]:
        """Return the listeners."""

    def node(self) -> Mapping[str, Any]:
        """Return this node."""

    def stats(self) -> Mapping[str, int]:
        """Return the present counts by name."""


class OverviewCalls:
    """Answers calls about the broker. Its list of nodes contains only this broker."""

    def __init__(self, overview: IOverview) -> None:
        self._overview = overview
        self.routes = (
            Route(
                method="GET",
                path="/api/v5/listeners",
                handler=self.listeners,
                scope=Scope.READ,
                summary="List the listeners with their connections",
                answers={200: Content(array(_LISTENER), "the listeners")},
            ),
            Route(
                method="GET",
                path="/api/v5/nodes",
                handler=self.nodes,
                scope=Scope.READ,
                summary="List the nodes: only this broker",
                answers={200: Content(array(_NODE), "this node")},
            ),
            Route(
                method="GET",
                path="/api/v5/nodes/{node}",
                handler=self.node,
                scope=Scope.READ,
                summary="Show this broker",
                parameters=(in_path("node", STRING, "node.id of the broker"),),
                answers={200: Content(_NODE, "this node")},
            ),
            Route(
                method="GET",
                path="/api/v5/stats",
                handler=self.stats,
                scope=Scope.READ,
                summary="Show the counts of clients, Sessions, subscriptions and messages",
                parameters=(query("aggregate", FLAG, "one object, instead of a list with an object for each node"),),
                answers={200: Content(ANYTHING, "the counts")},
            ),
        )

    def listeners(self, _call: Call) -> Deferred[Answer]:
        """Show the listeners."""
        return succeed(answer(self._overview.listeners()))

    def nodes(self, _call: Call) -> Deferred[Answer]:
        """Show this node in a list."""
        return succeed(answer([self._overview.node()]))

    def node(self, call: Call) -> Deferred[Answer]:
        """Show this node."""
        node = self._overview.node()
        if call.arguments["node"] != node["node"]:
            raise not_found(f"there is no such node; this is {node['node']}")
        return succeed(answer(node))

    def stats(self, call: Call) -> Deferred[Answer]:
        """Show the counts."""
        stats = self._overview.stats()
        if flag_of(call.arguments, "aggregate"):
            return succeed(answer(stats))
        return succeed(answer([{"node": self._overview.node()["node"], **stats}]))
