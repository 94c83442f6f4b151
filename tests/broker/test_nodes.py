"""The nodes of a cluster as one member tells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.call import RefusedCall
from holdfast.broker.nodes import Alone, FiguresOfMembers
from tests.storage.doubles import result_of


class Nodes:
    """Three nodes: one answers, one does not, one is dead; a fourth one is removed."""

    def nodes(self) -> Deferred[Sequence[Mapping[str, Any]]]:
        told = {"live_connections": 3, "connections": 5}
        return succeed([
            {"node": "1", "state": "draining", "silent": False, "lag": 0, **told},
            {"node": "2", "state": "member", "silent": True, "lag": 7},
            {"node": "3", "state": "dead", "silent": False, "lag": 9},
            {"node": "4", "state": "left", "silent": False, "lag": 0},
        ])  # fmt: skip

    def drain(self, _node: int, _begin: bool) -> Deferred[None]:
        raise NotImplementedError


def test_the_figures_of_all_members() -> None:
    """Sums are of those that answer; what nobody tells is unknown."""
    assert result_of(FiguresOfMembers(Nodes()).ask()) == {
        "members": "2", "silent": "1", "clients/total": "5", "clients/connected": "3",
        "nodes/1/state": "draining", "nodes/1/lag": "0",
        "nodes/1/clients/total": "5", "nodes/1/clients/connected": "3",
        "nodes/2/state": "silent", "nodes/2/lag": "7",
        "nodes/2/clients/total": "unknown", "nodes/2/clients/connected": "unknown",
        "nodes/3/state": "dead", "nodes/3/lag": "9",
        "nodes/3/clients/total": "unknown", "nodes/3/clients/connected": "unknown",
    }  # fmt: skip


def test_a_broker_alone_cannot_drain() -> None:
    """Its clients have nowhere to go."""
    nodes = Alone(lambda: {"node": "1"})
    assert result_of(nodes.nodes()) == [{"node": "1", "local": True}]
    with pytest.raises(RefusedCall, match="this broker is alone") as refused:
        result_of(nodes.drain(1, True))
    assert refused.value.status == 409
