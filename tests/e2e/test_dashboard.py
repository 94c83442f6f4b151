"""The dashboard of a real broker in a real browser: the way of an operator from the link to a restored message."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.dashboard.conftest import CHROMIUM
from tests.hostile_strings import NAMES, obeyed
from tests.processes import PATIENCE, BrokerProcess, unmeasured

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
TOPIC = "building/floor-1/temperature"

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the dashboard on a free port, and with a history."""
    config = tmp_path / "holdfast.toml"
    config.write_text('[mqtt]\ncontrol_characters = "accept"\n[retainer.history]\nenable = true\n')
    made = BrokerProcess(tmp_path, "--config", str(config), admin="tcp:0:interface=127.0.0.1").start()
    yield made
    made.end()


@pytest.fixture
def page(broker: BrokerProcess) -> Iterator[Any]:
    """A browser that has opened the link of ``holdfast dashboard``. It fails if the page complains."""
    from playwright.sync_api import sync_playwright

    command = [HOLDFAST, "dashboard", "--data-dir", "data", "--json"]
    done = subprocess.run(
        command, cwd=broker.directory, capture_output=True, text=True, timeout=PATIENCE, check=True, env=unmeasured()
    )
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        page.goto(json.loads(done.stdout)["url"])
        page.get_by_role("heading", name="Overview").wait_for()
        yield page
        browser.close()
    assert complaints == []


def go(page: Any, place: str) -> None:
    page.evaluate("place => { location.hash = place; }", place)


def test_an_operator_publishes_finds_clears_and_restores(page: Any, broker: BrokerProcess) -> None:
    """By the console, the tree, the changes and the history; the broker's log and the page agree on who it was."""
    assert "token" not in page.url
    go(page, "#/console")
    page.get_by_text("connected", exact=True).first.wait_for()
    page.get_by_label("Topic Filter", exact=True).fill("building/#")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.get_by_text("QoS 0").wait_for()
    for value in (20.5, 21.5):
        page.get_by_label("Topic", exact=True).fill(TOPIC)
        page.get_by_label("Payload", exact=True).fill(json.dumps({"value": value}))
        page.get_by_label("Retain", exact=False).last.check()
        page.locator("section", has=page.get_by_role("heading", name="Publish")).get_by_label("QoS").select_option("1")
        page.get_by_role("button", name="Publish", exact=True).click()
        page.get_by_role("button", name=TOPIC).nth(0 if value == 20.5 else 1).wait_for()

    go(page, f"#/retained/tree?topic={TOPIC.replace('/', '%2F')}")
    page.get_by_role("button", name="21.5").wait_for()
    page.get_by_role("treeitem").nth(2).wait_for()
    page.get_by_role("button", name="Clear…").click()
    page.get_by_role("button", name="Clear 1 message").click()
    page.get_by_text("This topic has no message.").wait_for()

    go(page, f"#/retained/changes?q=building%2F%23&topic={TOPIC.replace('/', '%2F')}&tab=history")
    page.get_by_role("img", name="$.value").wait_for()
    first = page.get_by_role("row").filter(has_text="20.5").first
    first.click()
    page.get_by_role("button", name="Restore this…").click()
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("button", name="Change 1 topic").click()
    page.get_by_text("Restored 1 topic").wait_for()
    page.get_by_role("tab", name="Message").click()
    page.get_by_role("button", name="20.5").wait_for()

    check_hostile_texts(page, broker)

    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("You have signed out.").wait_for()
    broker.wait_for("is gone")


def check_hostile_texts(page: Any, broker: BrokerProcess) -> None:
    """Whatever clients have written, the browser shows it as text, and what it would obey as escapes."""
    elements = "document.querySelectorAll('script, img, iframe, [onload], [onerror], [onfocus]').length"
    before = page.evaluate(elements)
    records = [
        {"topic": name, "payload": b64encode(name.encode()).decode(), "client_id": name, "username": name,
         "properties": {"user_properties": [[name, name]], "content_type": name}}
        for name in NAMES
    ]  # fmt: skip
    (broker.directory / "hostile").write_text("".join(json.dumps(record) + "\n" for record in records))
    command = [HOLDFAST, "retainer", "import", "hostile", "--data-dir", "data"]
    subprocess.run(command, cwd=broker.directory, capture_output=True, timeout=PATIENCE, check=True, env=unmeasured())
    for place, seen in (
        ("#/retained/search?q=%23", "__proto__"),
        ("#/retained/changes", "__proto__"),
        ("#/retained/tree", "; touch owned"),
        (f"#/retained/tree?topic={quote(NAMES[0], safe='')}", NAMES[0]),
    ):
        go(page, place)
        page.get_by_text(seen).first.wait_for()
        assert page.evaluate(elements) == before, place
        assert obeyed(page.evaluate("document.body.innerText")) <= {"\n", "\t"}, place
    assert page.evaluate("window.broken") is None


def test_a_console_without_a_session_is_refused(broker: BrokerProcess) -> None:
    """Nobody who has not signed in gets as far as MQTT."""
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    port = urlsplit(broker.wait_for("^admin http").split()[1]).port
    connection = HTTPConnection("127.0.0.1", port or 0, timeout=PATIENCE)
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    connection.request(
        "GET", "/mqtt", headers={**upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Cookie": "holdfast=x"}
    )
    response = connection.getresponse()
    assert response.status == 401
    assert "needs a login" in response.read().decode()
    connection.close()
