"""Operators of two brokers that are one: what they see of both at either, and what they change at both."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.commands.access import BrokerClient
from holdfast.commands.interfaces import Refused
from holdfast.config import default
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.e2e.test_cluster import member
from tests.processes import BrokerProcess

__all__ = ["member"]
pytestmark = [pytest.mark.e2e, pytest.mark.crash]

Member = Callable[..., BrokerProcess]


@pytest.fixture
def api(tmp_path: Path, url: str) -> Callable[..., Any]:
    """Make calls to a member over its control socket."""

    def call(number: int, method: str, path: str, body: bytes = b"") -> Any:
        folder = tmp_path / str(number)
        settings = default().override([], str(folder / "data"), url, allow_anonymous=True, cwd=folder)
        return BrokerClient(settings).call(method, f"/api/v5{path}", body=body)

    return call


def last_reason(client: RawClient) -> int | None:
    """Wait for the end of a connection; return the Reason Code of the last DISCONNECT."""
    codes = [int(packet.reason_code) for packet in client.packets() if isinstance(packet, p.Disconnect)]
    return codes[-1] if codes else None


def test_each_member_shows_all_clients_and_kicks_them(member: Member, url: str, api: Callable[..., Any]) -> None:
    """The members are listed with what they tell of themselves. One that stands still is silent, and so is named."""
    one, two = member(1, url).start(), member(2, url).start()
    first = RawClient(one.port, "a", version=5)
    other = RawClient(two.port, "b", version=5)
    for number in (1, 2):
        nodes = api(number, "GET", "/nodes")
        assert [(node["node"], node["state"], node["live_connections"], node["silent"]) for node in nodes] == [
            ("1", "member", 1, False),
            ("2", "member", 1, False),
        ]
        assert [node["local"] for node in nodes] == [number == 1, number == 2]
        clients = api(number, "GET", "/clients")
        assert [(row["clientid"], row["node"]) for row in clients["data"]] == [("a", "1"), ("b", "2")]
        assert (clients["meta"]["count"], clients["meta"]["nodes"]) == (2, {"1": 1, "2": 1})
        assert api(number, "GET", "/clients/b")["node"] == "2"
    api(1, "DELETE", "/clients/b")
    assert last_reason(other) == ReasonCode.ADMINISTRATIVE_ACTION
    assert api(1, "GET", "/clients")["meta"]["nodes"] == {"1": 1, "2": 0}
    os.kill(two.pid, signal.SIGSTOP)
    clients = api(1, "GET", "/clients")
    assert ([row["clientid"] for row in clients["data"]], clients["meta"]["silent"]) == (["a"], ["2"])
    assert [node["silent"] for node in api(1, "GET", "/nodes")] == [False, True]
    with pytest.raises(Refused, match="no answer has come from node 2"):
        api(1, "GET", "/clients/b")
    os.kill(two.pid, signal.SIGCONT)
    first.close()
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]
