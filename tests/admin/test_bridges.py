"""The API about bridges: their states, and pausing and resuming them."""

from __future__ import annotations

import json
from typing import Any

from holdfast.admin.api.bridges import BRIDGES_PATH, BridgeAPI
from holdfast.admin.call import Answer, Call, Caller, Scope, Via
from holdfast.admin.routing import RoutingTable
from tests.storage.doubles import result_of

ALICE = Caller("alice", 1000, frozenset({Scope.ADMIN}), via=Via.CONTROL)


class Bridges:
    """One bridge."""

    def __init__(self) -> None:
        self.state = "connected"

    def all_shown(self) -> list[dict[str, Any]]:
        return [self.shown("cloud")]

    def shown(self, name: str) -> dict[str, Any]:
        if name != "cloud":
            raise LookupError(name)
        return {"name": name, "state": self.state}

    def pause(self, name: str) -> None:
        self.shown(name)
        self.state = "paused"

    def resume(self, name: str) -> None:
        self.shown(name)
        self.state = "connecting"


def call(bridges: Bridges, method: str, path: str) -> tuple[int, Any]:
    table = RoutingTable(BridgeAPI(bridges).routes)
    found: Answer = result_of(table.answer(Call(method, BRIDGES_PATH + path, {}, b"", ALICE)))
    return found.status, json.loads(found.body)


def test_bridges_are_listed_paused_and_resumed() -> None:
    bridges = Bridges()
    assert call(bridges, "GET", "") == (200, {"data": [{"name": "cloud", "state": "connected"}]})
    assert call(bridges, "POST", "/cloud/pause") == (200, {"name": "cloud", "state": "paused"})
    assert call(bridges, "POST", "/cloud/resume") == (200, {"name": "cloud", "state": "connecting"})


def test_an_unknown_bridge_is_not_found() -> None:
    for change in ("pause", "resume"):
        status, problem = call(Bridges(), "POST", f"/x/{change}")
        assert status == 404
        assert problem["detail"] == "no bridge is named x"
