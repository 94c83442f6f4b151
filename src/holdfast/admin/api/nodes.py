"""Calls that show this broker, or all members of its cluster. Paths and fields are EMQX's where it has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from holdfast.admin.arguments import INTEGER, NUMBER, STRING, TIME, array, digits_of, record, whole
from holdfast.admin.call import Answer, Call, Scope, answer, bad_request, not_found
from holdfast.admin.routing import Content, Route, in_path, routes_of
from holdfast.scheduling.waiting import as_deferred

NODES_PREFIX = "/api/v5/nodes"

_NODE = record(
    {
        "node": STRING,
        "node_status": {"type": "string", "enum": ["running", "stopped"]},
        "version": STRING,
        "uptime": {"type": "integer", "description": "milliseconds"},
        "connections": {"type": "integer", "description": "Sessions, those of absent clients too"},
        "live_connections": INTEGER,
        "cluster_sessions": INTEGER,
        "memory_used": INTEGER,
        "memory_total": INTEGER,
        "max_fds": INTEGER,
        "load1": NUMBER,
        "load5": NUMBER,
        "load15": NUMBER,
        "local": {"type": "boolean", "description": "whether this node answers the call"},
        "cluster": {"type": "string", "description": "the name of the cluster; of a member only, as all that follows"},
        "state": {"type": "string", "enum": ["joining", "member", "draining", "silent", "dead", "left"]},
        "silent": {"type": "boolean", "description": "whether the living node has not answered within 2 seconds"},
        "incarnation": INTEGER,
        "lease_until": TIME,
        "lease_seconds": NUMBER,
        "lag": {"type": "integer", "description": "messages of other nodes in the database that it has still to read"},
        "configuration": {"type": "string", "description": "the same for nodes with the same options"},
        "address": {"type": "string", "description": "cluster.address of the node"},
        "carrier": {"type": "string", "description": "what carries messages between members"},
        "heard": {"type": "array", "items": INTEGER, "description": "the nodes that it hears"},
    },
    required=("node", "node_status", "local"),
)
_DRAINED = record({"node": STRING, "state": {"type": "string", "enum": ["draining", "member"]}})
#: the highest node.id
MOST_NODES = 255
_NUMBER = in_path("node", whole(1, MOST_NODES), "node.id of the broker")


class INodes(Protocol):
    """The nodes, as values for JSON."""

    def nodes(self) -> Deferred[Sequence[Mapping[str, Any]]]:
        """Return all nodes, by number."""

    def drain(self, node: int, begin: bool) -> Deferred[None]:
        """Ask a node to send its clients to others, or to serve clients again. Fails with RefusedCall."""


class NodeCalls:
    """Answers calls about nodes."""

    def __init__(self, nodes: INodes) -> None:
        self._nodes = nodes
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=NODES_PREFIX,
        scope=Scope.READ,
        summary="List the nodes: all that have ever joined the cluster, or only this broker",
        answers={200: Content(array(_NODE), "the nodes")},
    )
    @as_deferred
    async def nodes(self, _call: Call) -> Answer:
        """List the nodes."""
        return answer(await self._nodes.nodes())

    @Route(
        method="GET",
        path=f"{NODES_PREFIX}/{{node}}",
        scope=Scope.READ,
        summary="Show a node",
        parameters=(in_path("node", STRING, "node.id of the broker"),),
        answers={200: Content(_NODE, "the node")},
    )
    @as_deferred
    async def node(self, call: Call) -> Answer:
        """Show a node."""
        nodes = await self._nodes.nodes()
        for node in nodes:
            if node["node"] == call.arguments["node"]:
                return answer(node)
        there = ", ".join(str(node["node"]) for node in nodes)
        raise not_found(f"there is no node {call.arguments['node'][:20]!a}; there are: {there}")

    @Route(
        method="POST",
        path=f"{NODES_PREFIX}/{{node}}/drain",
        scope=Scope.ADMIN,
        summary="Let a node send its clients to other members, and admit no new ones, before it is stopped",
        parameters=(_NUMBER,),
        answers={200: Content(_DRAINED, "the node, and its state from now on")},
        finishes=True,
        stores=True,
    )
    def drain(self, call: Call) -> Deferred[Answer]:
        """Begin to drain."""
        return self._drain(call, True)

    @Route(
        method="DELETE",
        path=f"{NODES_PREFIX}/{{node}}/drain",
        scope=Scope.ADMIN,
        summary="Let a node that drains serve clients again",
        parameters=(_NUMBER,),
        answers={200: Content(_DRAINED, "the node, and its state from now on")},
        finishes=True,
        stores=True,
    )
    def cancel(self, call: Call) -> Deferred[Answer]:
        """End the draining."""
        return self._drain(call, False)

    @as_deferred
    async def _drain(self, call: Call, begin: bool) -> Answer:
        number = digits_of(call.arguments["node"])
        if number is None or not 1 <= number <= MOST_NODES:
            allowed = f"a whole number from 1 to {MOST_NODES}"
            raise bad_request(f"node is {allowed}", "node", allowed)
        await self._nodes.drain(number, begin)
        shown = {"node": str(number), "state": "draining" if begin else "member"}
        return answer(shown, note=shown)
