"""The log of a running broker about real clients."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable

import pytest

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e


def test_lines_have_the_address_of_the_client_and_attackers_cause_few_of_them(
    broker_in: Callable[..., BrokerProcess],
) -> None:
    broker = broker_in().start()
    ports = []
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", broker.port)) as attacker:
            ports.append(attacker.getsockname()[1])
            attacker.sendall(b"\x20\x02\x00\x00")
            assert attacker.recv(100) == b""
    client = RawClient(broker.port, "c\u202e")
    # JSON doubles the backslash of the escape
    who = re.escape(rf"'c\\u202e' from 127.0.0.1:{client.socket.getsockname()[1]} ")
    client.send(p.Disconnect())
    broker.wait_for(who + "is connected: MQTT 3.1.1, no user name, a new Session")
    broker.wait_for(who + "is gone: DISCONNECT 0x00")
    check_trace(broker)
    broker.stop()
    lines = [line for line in broker.lines if "broke the protocol" in line]
    assert f"a new client from 127.0.0.1:{ports[0]}: broke the protocol" in lines[0]
    assert len(lines) <= 5


def check_trace(broker: BrokerProcess) -> None:
    """A trace of a client that connects later has all its packets; its broker is not started for this alone."""
    command = (HOLDFAST_RUN[0], "trace", "traced", "--json", "--data-dir", str(broker.directory / "data"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stdout is not None
        assert json.loads(tracing.stdout.readline())["event"] == "waiting"
        client = RawClient(broker.port, "traced")
        client.send(p.Publish("t", b"hello"), p.Disconnect())
        events = [json.loads(tracing.stdout.readline()) for _ in range(6)]
        tracing.terminate()
        tracing.wait(PATIENCE)
    assert [event.get("packet") for event in events] == [None, "CONNECT", "CONNACK", "PUBLISH", "DISCONNECT", None]
    assert events[3]["payload"] == "hello"
