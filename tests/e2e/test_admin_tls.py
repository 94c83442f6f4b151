"""The API and the dashboard over TLS, with real certificates, real passwords and a real browser."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import CLIENT, Authority
from tests.dashboard.conftest import CHROMIUM
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess, unmeasured

pytestmark = pytest.mark.e2e

# These parameters of hashes are the cheapest: the tests are about logins, not about the price of guesses.
CONFIGURATION = """
[authentication.accounts]
type = "database"
memory = "64KB"
passes = 1
[admin]
users_group = "operators"
[admin.tls]
certificate = "server.pem"
key = "server.key"
"""
ASKS_CLIENTS = 'client = "required"\nclient_ca = "clients-ca.pem"\n'


class Secured:
    """A broker whose API has TLS, in a folder with certificates."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self.authority = Authority()
        self.authority.write(folder, "ca")
        self.certify("first")
        clients = Authority("Clients CA")
        clients.write(folder, "clients-ca")
        clients.issue("operator", usage=CLIENT).write(folder, "client")
        (folder / "h.toml").write_text(CONFIGURATION + more)
        self.broker = BrokerProcess(
            folder, "--config", "h.toml", admin="tcp:0:interface=127.0.0.1", program=HOLDFAST_RUN
        ).start()
        self.url = self.broker.wait_for("^admin ").split()[1]
        self.port = int(self.url.rstrip("/").rsplit(":", 1)[1])

    def certify(self, common_name: str) -> None:
        """Write a certificate for localhost with this common name."""
        self.authority.issue(common_name, ["localhost"]).write(self.folder, "server")

    def holdfast(self, *words: str, typed: str = "") -> str:
        return subprocess.run(
            [sys.executable, "-m", "holdfast.commands", *words, "--config", "h.toml", "--data-dir", "data"],
            cwd=self.folder, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=True,
            env=unmeasured(),
        ).stdout  # fmt: skip

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "ca.pem"))

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        made = http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE, context=context or self.context())
        made.connect()
        return made


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Secured]]:
    made: list[Secured] = []

    def begin(more: str = "") -> Secured:
        made.append(Secured(tmp_path, more))
        return made[-1]

    yield begin
    for each in made:
        status, errors = each.broker.stop()
        assert (status, "Traceback" in errors) == (0, False), errors


def asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, Any, http.client.HTTPResponse]:
    """Return status, JSON and response of a call."""
    data = None if body is None else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, data, {"Content-Type": "application/json", **named})
    response = connection.getresponse()
    text = response.read()
    return response.status, json.loads(text) if text else None, response


def common_name(connection: http.client.HTTPSConnection) -> str:
    certificate: Any = connection.sock.getpeercert()
    return str(dict(pair for (pair,) in certificate["subject"])["commonName"])


def test_keys_passwords_and_new_certificates(start: Callable[[], Secured]) -> None:
    """A key works; a user logs in by password, and no longer once removed; a new certificate disturbs no connection."""
    secured = start()
    assert secured.url.startswith("https://")
    key = json.loads(secured.holdfast("api-key", "add", "reader", "--scope", "read", "--json"))["bearer"]
    secured.holdfast("user", "add", "alice", "--group", "operators", typed="secret\n")
    secured.holdfast("user", "add", "bob", typed="secret\n")
    connection = secured.connect()
    assert common_name(connection) == "first"
    status, nodes, _ = asked(connection, "GET", "/api/v5/nodes", Authorization=f"Bearer {key}")
    assert (status, len(nodes)) == (200, 1)

    origin = f"https://localhost:{secured.port}"
    for name, password in (("alice", "wrong"), ("bob", "secret"), ("nobody", "secret")):
        status, problem, _ = asked(
            connection, "POST", "/api/v5/login", {"username": name, "password": password}, Origin=origin
        )
        assert (status, "secret" in str(problem)) == (401, False)
    login = {"username": "alice", "password": "secret"}
    status, session, response = asked(connection, "POST", "/api/v5/login", login, Origin=origin)
    cookie = response.headers["Set-Cookie"]
    assert (status, session["name"]) == (200, "user alice via dashboard")
    assert cookie.startswith(f"__Host-holdfast-{secured.port}=")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    mine = {"Cookie": cookie.partition(";")[0]}
    assert asked(connection, "GET", "/api/v5/session", **mine)[0] == 200
    change = {"topic": "a/b", "payload": "x", "retain": True}
    assert asked(connection, "POST", "/api/v5/publish", change, **mine)[0] == 403  # without the token
    token = {"X_CSRF_Token": session["csrf_token"]}
    assert asked(connection, "POST", "/api/v5/publish", change, **mine, **token)[0] == 202  # nobody subscribes

    # The new files count for new connections soon; the old connection goes on.
    secured.certify("second")
    deadline = time.monotonic() + PATIENCE
    while common_name(secured.connect()) != "second":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert asked(connection, "GET", "/api/v5/session", **mine)[0] == 200
    secured.holdfast("user", "remove", "alice")
    assert asked(connection, "GET", "/api/v5/session", **mine)[0] == 401


def test_who_does_not_speak_tls_or_shows_no_certificate_is_disconnected(start: Callable[[str], Secured]) -> None:
    """Plain HTTP, garbage, an early end and a client without the certificate get nothing; others work."""
    secured = start(ASKS_CLIENTS)
    for first in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(200), b""):
        with socket.create_connection(("127.0.0.1", secured.port), timeout=PATIENCE) as plain:
            plain.sendall(first)
            plain.shutdown(socket.SHUT_WR)
            answer = plain.recv(1000)
            assert b"HTTP" not in answer
    with pytest.raises((OSError, http.client.HTTPException)):
        asked(secured.connect(), "GET", "/healthz")
    Authority("Strangers").issue("operator", usage=CLIENT).write(secured.folder, "stranger")
    strange = secured.context()
    strange.load_cert_chain(secured.folder / "stranger.pem", secured.folder / "stranger.key")
    with pytest.raises((OSError, http.client.HTTPException)):
        asked(secured.connect(strange), "GET", "/healthz")
    secured.broker.wait_for("listener admin .* its TLS handshake failed: it speaks a protocol of plain text")
    known = secured.context()
    known.load_cert_chain(secured.folder / "client.pem", secured.folder / "client.key")
    assert asked(secured.connect(known), "GET", "/healthz")[0] == 200


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_dashboard_and_its_console_over_tls(start: Callable[[], Secured]) -> None:
    """A user signs in by password in a browser; the console publishes and receives over wss."""
    from playwright.sync_api import sync_playwright

    secured = start()
    secured.holdfast("user", "add", "alice", "--group", "operators", typed="secret\n")
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--ignore-certificate-errors"]
        )
        page = browser.new_context(ignore_https_errors=True).new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        sockets: list[str] = []
        page.on("websocket", lambda opened: sockets.append(opened.url))
        page.goto(f"https://localhost:{secured.port}/#/console")
        page.get_by_label("User name").fill("alice")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("the password is wrong").wait_for()
        page.get_by_label("Password").fill("secret")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("connected", exact=True).first.wait_for()
        page.get_by_label("Topic Filter", exact=True).fill("plant/#")
        page.get_by_role("button", name="Subscribe", exact=True).click()
        page.get_by_text("QoS 0").wait_for()
        page.get_by_label("Topic", exact=True).fill("plant/pump")
        page.get_by_label("Payload", exact=True).fill("on")
        page.get_by_role("button", name="Publish", exact=True).click()
        page.get_by_role("button", name="plant/pump").first.wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("button", name="Sign in").wait_for()
        browser.close()
    assert complaints == []
    assert all(url.startswith(f"wss://localhost:{secured.port}/") for url in sockets)
    assert sockets
