"""The API over HTTP of a real broker: keys with and without a running broker, the link of the dashboard, TLS."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.processes import PATIENCE, BrokerProcess, unmeasured

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


class Place:
    """A broker with the API on a free port, and the commands for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = BrokerProcess(folder, admin="tcp:0:interface=127.0.0.1")

    @property
    def port(self) -> int:
        """The port of the API."""
        return urlsplit(self.broker.wait_for("^admin http").split()[1]).port or 0

    def command(self, *words: str) -> Any:
        """Run a command that answers in JSON."""
        done = subprocess.run(
            [HOLDFAST, *words, "--data-dir", "data", "--json"],
            cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False, env=unmeasured(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, str | None]:
        """Make a call; return status, content and cookie."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            data = None if body is None else json.dumps(body)
            named = {"Prefer": "wait=60", **{name.replace("_", "-"): value for name, value in headers.items()}}
            connection.request(method, path, data, named)
            response = connection.getresponse()
            found = response.read()
            return response.status, json.loads(found) if found else None, response.getheader("Set-Cookie")
        finally:
            connection.close()

    def job(self, method: str, path: str, **headers: str) -> Any:
        """Make a call that begins a job; return the job after its end."""
        status, job, _ = self.ask(method, path, **headers)
        assert status == 202
        deadline = time.monotonic() + PATIENCE
        while job["state"] == "running" and time.monotonic() < deadline:
            time.sleep(0.05)
            job = self.ask("GET", f"/api/v5/jobs/{job['id']}", **headers)[1]
        assert job["state"] == "done", job
        return job


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("api"))
    made.broker.start()
    yield made
    made.broker.end()


def test_a_key_of_a_running_broker_counts_at_once_until_it_is_revoked(place: Place) -> None:
    made = place.command("api-key", "add", "tool", "--scope", "read", "--scope", "retained:write")
    header = {"Authorization": f"Bearer {made['api_key']}:{made['api_secret']}"}
    path = "/api/v5/mqtt/retainer/messages"
    assert place.ask("POST", path, {"topic": "a/b", "payload": "x"}, **header)[0] == 204
    status, page, _ = place.ask("GET", path, **header)
    assert (status, [row["topic"] for row in page["data"]]) == (200, ["a/b"])
    assert place.ask("POST", "/api/v5/reload", **header)[0] == 403
    assert place.ask("GET", path)[0] == 401
    place.command("api-key", "revoke", "tool")
    assert place.ask("GET", path, **header)[0] == 401


def test_a_real_broker_shows_itself_publishes_and_backs_its_database_up(place: Place) -> None:
    made = place.command("api-key", "add", "looker", "--scope", "admin")
    header = {"Authorization": f"Bearer {made['api_key']}:{made['api_secret']}"}
    (listener,) = place.ask("GET", "/api/v5/listeners", **header)[1]
    assert (listener["type"], listener["running"], listener["status"]["current_connections"]) == ("tcp", True, 0)
    (node,) = place.ask("GET", "/api/v5/nodes", **header)[1]
    assert (node["node"], node["node_status"], node["live_connections"]) == ("1", "running", 0)
    assert place.ask("GET", "/api/v5/stats?aggregate=true", **header)[1]["sessions.count"] == 0
    assert place.ask("GET", "/api/v5/clients", **header)[1]["data"] == []
    message = {"topic": "c", "payload": "1", "retain": True}
    assert place.ask("POST", "/api/v5/publish", message, **header)[0] == 202
    status, content, _ = place.ask("PUT", "/api/v5/configs", {"toml": ""}, **header)
    assert (status, content["code"]) == (409, "NOT_WRITABLE")
    assert place.ask("GET", "/api/v5/configs", **header)[1]["file"] is None
    place.job("POST", "/api/v5/backup", **header)
    (backup,) = place.ask("GET", "/api/v5/backups", **header)[1]["data"]
    assert (place.folder / "data" / "backups" / backup["name"]).stat().st_size == backup["size"]
    cleared = place.job("DELETE", "/api/v5/mqtt/retainer/messages?topic=c", Prefer="respond-async", **header)
    assert (cleared["by"], cleared["about"], cleared["result"]["count"]) == ("key looker", "c", 1)
    assert cleared["progress"]["total"] == 1


def test_the_link_of_the_dashboard_command_logs_in(place: Place) -> None:
    token = urlsplit(place.command("dashboard")["url"]).fragment.partition("=")[2]
    status, session, cookie = place.ask("POST", "/api/v5/login", {"token": token})
    assert (status, session["scopes"]) == (200, ["admin"])
    assert cookie is not None
    headers = {"Cookie": cookie.partition(";")[0], "X_CSRF_Token": session["csrf_token"]}
    assert place.ask("POST", "/api/v5/reload", **headers)[0] == 200
    assert place.ask("POST", "/api/v5/login", {"token": token})[0] == 401
    assert token not in "\n".join(place.broker.lines)


def test_a_page_elsewhere_reaches_nothing(place: Place) -> None:
    assert place.ask("GET", "/openapi.json")[0] == 200
    assert place.ask("GET", "/openapi.json", Host="evil.example")[0] == 421
    assert place.ask("POST", "/api/v5/login", {"token": "x"}, Origin="http://evil.example")[0] == 403


def test_a_port_in_use_stops_the_start_and_says_what_to_do(place: Place, tmp_path: Path) -> None:
    other = BrokerProcess(tmp_path, admin=f"tcp:{place.port}:interface=127.0.0.1")
    other.launch()
    status, errors = other.wait()
    assert status == 1
    assert "admin.endpoint" in errors
