"""``GET /api/v5/retained`` of a real broker: a shell script and a web page read and follow as MQTT clients do."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.e2e.test_events import Events
from tests.e2e.test_passwords import Client
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

PATH = "/api/v5/retained"
CONFIGURATION = """
[admin]
endpoint = "tcp:0:interface=127.0.0.1"
clients_of = "door"
[authentication.accounts]
type = "database"
[authorization]
sources = ["stored"]
[authorization.stored]
type = "database"
[listeners.door]
endpoint = "tcp:0:interface=127.0.0.1"
"""


class Page:
    """What a script of one user asks for."""

    def __init__(self, broker: BrokerProcess, login: str) -> None:
        self._port = urlsplit(broker.wait_for("^admin http").split()[1]).port or 0
        self._headers = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}

    def response(self, query: str, **headers: str) -> http.client.HTTPResponse:
        self.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        self.connection.request("GET", f"{PATH}?{query}", headers={**self._headers, **headers})
        return self.connection.getresponse()

    def ask(self, query: str, **headers: str) -> tuple[int, bytes]:
        response = self.response(query, **headers)
        try:
            return response.status, response.read()
        finally:
            self.connection.close()


def test_a_page_reads_and_follows_with_the_rights_of_its_user(tmp_path: Path) -> None:
    """Values, live changes and clears come as in MQTT; the stream ends with a reason when its user is removed."""
    file = tmp_path / "holdfast.toml"
    file.write_text(CONFIGURATION)
    broker = BrokerProcess(tmp_path, "--config", str(file), listen=False, admin=None).start()

    def holdfast(*words: str, typed: str = "") -> None:
        options = ("--config", str(file), "--data-dir", str(broker.directory / "data"))
        command = [sys.executable, "-m", "holdfast.commands", *words, *options]
        done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def event(events: Events, name: str) -> Any:
        return events.next(name)

    try:
        holdfast("user", "add", "alice", typed="secret\n")
        holdfast("acl", "add", "allow", "--action", "all", "--topic", "plant/#", "--user", "alice")
        alice = Client(broker, MQTTProtocolVersion.MQTTv5, "alice", "secret")
        alice.client.publish("plant/1", b"old", 1, retain=True).wait_for_publish(PATIENCE)
        page = Page(broker, "alice:secret")
        status, body = page.ask("topic=plant/1")
        assert (status, b64decode(json.loads(body)["payload"])) == (200, b"old")
        assert page.ask("topic=plant/1", Accept="application/octet-stream") == (200, b"old")
        assert page.ask("filter=other/%23")[0] == 403
        assert Page(broker, "alice:wrong").ask("topic=plant/1")[0] == 401
        assert page.ask("topic=plant/2")[0] == 404
        response = page.response(f"filter={quote('plant/#')}", Accept="text/event-stream")
        assert (response.status, response.getheader("Content-Type")) == (200, "text/event-stream")
        events = Events(response)
        assert event(events, "retained")["topic"] == "plant/1"
        assert event(events, "ready") == {"count": 1}
        alice.client.publish("plant/2", b"live", 1, retain=True).wait_for_publish(PATIENCE)
        told = event(events, "retained")
        assert (told["topic"], b64decode(told["payload"])) == ("plant/2", b"live")
        alice.client.publish("plant/1", b"", 1, retain=True).wait_for_publish(PATIENCE)
        assert event(events, "cleared")["topic"] == "plant/1"
        holdfast("user", "remove", "alice")
        assert "removed" in event(events, "end")["reason"]
        assert events.ends()
        assert page.ask("topic=plant/1")[0] == 401
    finally:
        broker.end()
