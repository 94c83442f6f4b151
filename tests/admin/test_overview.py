"""Calls that show the broker itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.admin.api.nodes import NodeCalls
from holdfast.admin.api.overview import OverviewCalls
from holdfast.admin.call import Call, Caller, Scope
from holdfast.admin.routing import RoutingTable
from holdfast.broker.nodes import Alone
from tests.storage.doubles import result_of


class Shown:
    """A broker with one listener."""

    def listeners(self) -> Sequence[Mapping[str, Any]]:
        return [{"id": "tcp:default"}]

    def node(self) -> Mapping[str, Any]:
        return {"node": "1", "node_status": "running"}

    def stats(self) -> Mapping[str, int]:
        return {"sessions.count": 7}


def get(path: str, **arguments: str) -> tuple[int, Any]:
    nodes = NodeCalls(Alone(lambda: {"node": "1", "node_status": "running"}))
    table = RoutingTable([*OverviewCalls(Shown()).routes, *nodes.routes])
    caller = Caller(scopes=frozenset({Scope.READ}))
    found = result_of(table.answer(Call("GET", f"/api/v5{path}", arguments, b"", caller)))
    return found.status, json.loads(found.body)


def test_the_shapes_are_those_of_emqx() -> None:
    """Lists without pages; the numbers come for each node, or together."""
    assert get("/listeners") == (200, [{"id": "tcp:default"}])
    assert get("/nodes") == (200, [{"node": "1", "node_status": "running", "local": True}])
    assert get("/nodes/1") == (200, {"node": "1", "node_status": "running", "local": True})
    assert get("/nodes/2")[0] == 404
    assert get("/stats") == (200, [{"node": "1", "sessions.count": 7}])
    assert get("/stats", aggregate="true") == (200, {"sessions.count": 7})
    assert get("/stats", aggregate="1")[0] == 400
