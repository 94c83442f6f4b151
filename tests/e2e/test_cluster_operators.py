"""Operators of two brokers that are one: what they see of both at either, and what they change at both."""

from __future__ import annotations

import json
import os
import queue
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from holdfast.commands.access import BrokerClient, SocketConnection
from holdfast.commands.interfaces import Refused
from holdfast.config import default
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.e2e.test_cluster import member
from tests.processes import BrokerProcess

__all__ = ["member"]
pytestmark = [pytest.mark.e2e, pytest.mark.crash]

DATABASE = """
[authentication.accounts]
type = "database"
[authorization]
sources = ["stored"]
[authorization.stored]
type = "database"
"""
Member = Callable[..., BrokerProcess]


@pytest.fixture
def api(tmp_path: Path, url: str) -> Callable[..., Any]:
    """Make calls to a member over its control socket."""

    def call(number: int, method: str, path: str, body: bytes = b"") -> Any:
        folder = tmp_path / str(number)
        settings = default().override([], str(folder / "data"), url, allow_anonymous=True, cwd=folder)
        return BrokerClient(settings).call(method, f"/api/v5{path}", body=body)

    return call


def login(name: str) -> p.Connect:
    """Return CONNECT of a user, whose Client Identifier is the same."""
    return p.Connect(name, 5, True, username=name, password=b"secret of a user")


def subscribes(client: RawClient, topic_filter: str) -> bool:
    """Subscribe; return whether the subscription is granted."""
    client.send(p.Subscribe(1, (p.SubscriptionRequest(topic_filter),)))
    answer = next(client.packets())
    assert isinstance(answer, p.Suback)
    return answer.reason_codes[0] < 128


def last_packet(client: RawClient) -> bytes:
    """Wait for the end of a connection; return the bytes of its last packet, if one comes."""
    return b"".join(iter(lambda: client.socket.recv(4096), b""))


def last_reason(client: RawClient) -> int | None:
    """Wait for the end of a connection; return the Reason Code of the last DISCONNECT."""
    codes = [int(packet.reason_code) for packet in client.packets() if isinstance(packet, p.Disconnect)]
    return codes[-1] if codes else None


def test_bans_users_and_rules_count_at_all_members(member: Member, url: str, api: Callable[..., Any]) -> None:
    """A ban also ends the connections of its client, at whichever member it is made."""
    one, two = (member(number, url, more=DATABASE).start() for number in (1, 2))

    def until(done: Callable[[], bool]) -> None:
        while not done():
            time.sleep(0.02)

    def connects(port: int, name: str) -> bool:
        try:
            RawClient.connected(port, login(name)).close()
        except AssertionError:
            return False
        return True

    api(1, "POST", "/users", b'{"user_id": "alice", "password": "secret of a user"}')
    until(lambda: connects(two.port, "alice"))
    client = RawClient.connected(two.port, login("alice"))
    api(1, "POST", "/rules", b'{"action": ["subscribe"], "topics": ["a/#"], "allow": true}')
    until(lambda: subscribes(client, "a/b"))
    api(1, "POST", "/banned", b'{"as": "username", "who": "alice"}')
    assert last_packet(client)[:3:2] == bytes([0xE0, ReasonCode.BANNED])
    assert not connects(two.port, "alice")
    assert [ban["who"] for ban in api(2, "GET", "/banned")["data"]] == ["alice"]
    api(2, "DELETE", "/banned/username/alice")
    until(lambda: connects(one.port, "alice"))
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def test_each_member_shows_all_clients_and_kicks_them(member: Member, url: str, api: Callable[..., Any]) -> None:
    """The members are listed with what they tell of themselves. One that stands still is silent, and so is named."""
    often = 'sys_topics.sys_msg_interval = "1s"\n'
    one, two = (member(number, url, lease="9s", more=often).start() for number in (1, 2))
    first = RawClient(one.port, "a", version=5)
    other = RawClient(two.port, "b", version=5)
    first.send(p.Subscribe(1, (p.SubscriptionRequest("$SYS/cluster/clients/connected"),)))
    assert any(isinstance(packet, p.Publish) and packet.payload == b"2" for packet in first.packets())
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


def test_a_member_is_emptied_before_it_is_stopped(
    member: Member, url: str, api: Callable[..., Any], tmp_path: Path
) -> None:
    """Its clients go to the other member, whose address they are told. It can be called back."""
    one, two = (member(number, url, more=f'cluster.address = "mqtt{number}:1883"\n').start() for number in (1, 2))
    ends: queue.Queue[tuple[str, str | None]] = queue.Queue()

    def connected(port: int, version: MQTTProtocolVersion) -> mqtt.Client:
        client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=version, reconnect_on_failure=False)
        client.on_disconnect = lambda _c, _u, _f, reason, properties: ends.put(
            (str(reason), getattr(properties, "ServerReference", None))
        )
        client.connect("127.0.0.1", port)
        client.loop_start()
        while not client.is_connected():
            time.sleep(0.01)
        return client

    clients = [connected(one.port, version) for version in (MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311)]
    assert api(2, "POST", "/nodes/1/drain") == {"node": "1", "state": "draining"}
    one.wait_for("this node has no clients any more: stop it, or end the draining")
    assert {ends.get(timeout=30) for _ in clients} == {
        ("Use another server", "mqtt2:1883"),
        ("Unspecified error", None),
    }
    late = RawClient.__new__(RawClient)
    late.greet = late.send  # type: ignore[method-assign, assignment]
    late.open(one.port, p.Connect("late", 5))
    (connack,) = late.packets()
    assert isinstance(connack, p.Connack)
    assert (connack.reason_code, connack.properties.server_reference) == (0x9C, "mqtt2:1883")
    assert ready(tmp_path / "1") == (503, "this node drains: its clients are sent to other members")
    assert [node["state"] for node in api(1, "GET", "/nodes")] == ["draining", "member"]
    api(1, "DELETE", "/nodes/1/drain")
    one.wait_for("this node does not drain any more: clients are admitted again")
    assert ready(tmp_path / "1") == (200, "ok")
    clients.append(connected(one.port, MQTTProtocolVersion.MQTTv5))
    for client in clients:
        client.loop_stop()
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def ready(folder: Path) -> tuple[int, str]:
    """Return the status of /readyz of a member, and what the check of its process tells."""
    settings = default().override([], str(folder / "data"), None, allow_anonymous=True, cwd=folder)
    connection = SocketConnection(settings)
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    return answer.status, json.load(answer)["checks"]["process"]
