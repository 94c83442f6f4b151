"""Hooks of a real broker, and a real HTTP server that they tell of events."""

from __future__ import annotations

import hmac
import http.server
import json
import random
import threading
import time
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.paho import PahoClient
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

SECRET = b"a secret of a hook"


class Server:
    """Takes requests. ``status`` answers the next one; None lets it hang until the client leaves."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status: Callable[[], int | None] = lambda: 204
        own = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = own.status()
                if status is None:
                    self.rfile.read(1)  # until the client closes
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                if status < 300:
                    own.requests.append((headers, body))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                """Print nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all requests, in the order of their coming."""
        return [event for _, body in tuple(self.requests) for event in json.loads(body)["events"]]

    def values(self) -> dict[str, list[int]]:
        """Return the numbers that came for each topic, in their order."""
        found = defaultdict(list)
        for event in self.events():
            if event["type"] == "retained" and event["event"] == "set":
                found[event["topic"]].append(int(b64decode(event["payload"])))
        return found

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.events()[-5:]
            time.sleep(0.02)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@contextmanager
def broker_with(folder: Path, server: Server, options: str, *storage: str) -> Iterator[BrokerProcess]:
    """Run a broker with one hook."""
    (folder / "key").write_bytes(SECRET)
    (folder / "key").chmod(0o600)
    file = folder / "holdfast.toml"
    file.write_text(
        f'[[hooks]]\nname = "test"\nurl = "{server.url}"\ninsecure = true\nsecret = "file:key"\n'
        f'timeout = "1s"\n{options}\n'
    )
    broker = BrokerProcess(folder, "--config", str(file), *storage)
    broker.start()
    try:
        yield broker
    finally:
        broker.end()


def publish(client: PahoClient, topic: str, payload: str) -> None:
    client.client.publish(topic, payload, 1, retain=True).wait_for_publish(PATIENCE)


def test_events_come_signed(tmp_path: Path, server: Server, storage: tuple[str, ...]) -> None:
    """Retained changes, clears, and clients that come and go; what the filters do not match does not come."""
    with broker_with(tmp_path, server, 'retained = ["plant/+"]\nclients = true', *storage) as broker:
        client = PahoClient(broker.port, client_id="pump")
        publish(client, "other/1", "0")
        publish(client, "plant/1", "7")
        publish(client, "plant/1", "")
        client.client.disconnect()

        def told() -> bool:
            shown = {(each["type"], each.get("event")) for each in server.events()}
            return {("retained", "clear"), ("client", "connected"), ("client", "disconnected")} <= shown

        server.wait(told)
        assert {each["topic"] for each in server.events() if each["type"] == "retained"} == {"plant/1"}
        for headers, body in server.requests:
            content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            signature = b64encode(hmac.digest(SECRET, content, sha256)).decode()
            assert headers["webhook-signature"] == f"v1,{signature}"
            assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
            assert json.loads(body)["id"] == headers["webhook-id"]


def test_a_server_that_fails_gets_everything_later(tmp_path: Path, server: Server) -> None:
    """Redirects and requests that hang are repeated; the broker goes on meanwhile."""
    answers: list[int | None] = [302, None]
    server.status = lambda: answers.pop(0) if answers else 200
    with broker_with(tmp_path, server, 'retained = ["#"]') as broker:
        client = PahoClient(broker.port)
        for number in range(20):
            publish(client, f"t/{number}", str(number))
        server.wait(lambda: len(server.values()) == 20)
        assert not answers


@pytest.mark.parametrize("rounds", [1, pytest.param(25, marks=pytest.mark.nightly)])
def test_kill_9_loses_no_change(tmp_path: Path, server: Server, storage: tuple[str, ...], rounds: int) -> None:
    """Each acknowledged change arrives at least once: of one topic the newest, in order. The server fails, too."""
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    server.status = lambda: 503 if chance.random() < 0.1 else 200
    acknowledged: dict[str, int] = {}
    with broker_with(tmp_path, server, 'retained = ["#"]\nbatch = 7', *storage) as broker:
        number = 0
        for _ in range(rounds):
            client = PahoClient(broker.port, comes_back=False)
            for _ in range(chance.randrange(30, 120)):
                number += 1
                topic = f"own/{number}" if chance.random() < 0.5 else f"shared/{number % 5}"
                publish(client, topic, str(number))
                acknowledged[topic] = number
            time.sleep(chance.random() * 2)
            broker.kill()
            broker.start()
        server.wait(lambda: all(acknowledged[topic] in server.values().get(topic, ()) for topic in acknowledged))
    for values in server.values().values():
        assert values == sorted(values)


@pytest.mark.nightly
def test_of_a_cluster_one_node_delivers_and_another_takes_over(tmp_path: Path, server: Server, url: str) -> None:
    """Each change comes once while both run. The node that delivers is killed: the other one loses nothing."""
    brokers = {}
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "holdfast.toml").write_text(
            f'node.id = {number}\ncluster.name = "plant"\ncluster.lease = "3s"\n[[hooks]]\nname = "test"\n'
            f'url = "{server.url}"\ninsecure = true\nretained = ["#"]\n'
        )
        brokers[number] = BrokerProcess(folder, "--config", "holdfast.toml", "--storage", url)
    try:
        clients = {number: PahoClient(broker.start().port) for number, broker in brokers.items()}
        for value in range(40):
            publish(clients[1 + value % 2], f"t/{value}", str(value))
        server.wait(lambda: len(server.values()) == 40)
        assert all(len(values) == 1 for values in server.values().values())
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            ((node,),) = connection.execute("SELECT node FROM hook_positions").fetchall()
        publish(clients[3 - node], "shared", "1")
        brokers[node].kill()
        for value in range(2, 20):
            publish(clients[3 - node], "shared", str(value))
        server.wait(lambda: server.values()["shared"][-1:] == [19])
        assert server.values()["shared"] == sorted(server.values()["shared"])
    finally:
        for broker in brokers.values():
            broker.end()
