"""The walk of an operator through the dashboard of a broker with :mod:`tests.e2e.fleet`, step by step.

Each step is what the operator wants, done by clicks and keys alone, and waits until the page shows it. ``times`` has
the seconds of each step. With ``pictures``, each step leaves a picture of what the operator sees.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.wire import packets as p
from tests.dashboard.conftest import CHROMIUM
from tests.e2e.fleet import FLOOR, OPERATOR, SENSOR, VEHICLE
from tests.e2e.raw import RawClient
from tests.processes import PATIENCE, BrokerProcess, unmeasured

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
#: the Client Identifier of the client that the operator kicks
SLOW = "slow-wall-display"


def link(broker: BrokerProcess) -> str:
    """Return the link of ``holdfast dashboard``, which signs in one browser."""
    command = [HOLDFAST, "dashboard", "--data-dir", "data", "--json"]
    done = subprocess.run(
        command, cwd=broker.directory, capture_output=True, text=True, timeout=PATIENCE, check=True, env=unmeasured()
    )
    url: str = json.loads(done.stdout)["url"]
    return url


@contextmanager
def window(width: int = 1280, dark: bool = False) -> Iterator[Any]:
    """Open a browser with one page. It must not write errors to its console."""
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(
                viewport={"width": width, "height": 800},
                color_scheme="dark" if dark else "light",
                has_touch=width < 600,
            )
            page.set_default_timeout(20_000)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on(
                "console",
                lambda said: (
                    complaints.append(said.text) if said.type == "error" and "status of 404" not in said.text else None
                ),
            )
            yield page
        finally:
            browser.close()
    assert complaints == []


class Walk:
    """The steps in their order. ``page`` is a new one; ``pictures`` is a folder."""

    def __init__(self, page: Any, broker: BrokerProcess, pictures: Path | None = None) -> None:
        self.times: dict[str, float] = {}
        self._page = page
        self._broker = broker
        self._pictures = pictures
        self._narrow = page.viewport_size["width"] < 900

    @contextmanager
    def _step(self, name: str) -> Iterator[Any]:
        begin = time.monotonic()
        yield self._page
        self.times[name] = time.monotonic() - begin
        if self._pictures is not None:
            self._page.wait_for_timeout(500)
            self._page.screenshot(path=self._pictures / f"{len(self.times):02}-{name.replace(' ', '-')}.png")

    def _open(self, name: str) -> None:
        """Go to a page by the list of pages."""
        if self._narrow:
            self._page.get_by_role("button", name="Pages").click()
        self._page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()

    def _click(self, name: str, role: str = "button") -> None:
        self._page.get_by_role(role, name=name, exact=True).first.click()

    def _mode(self, name: str) -> None:
        if self._narrow and self._page.get_by_role("link", name=re.compile("^Back to the")).is_visible():
            self._page.get_by_role("link", name=re.compile("^Back to the")).click()
        self._page.get_by_role("radio", name=name, exact=True).click()

    def open_the_link(self) -> None:
        """Sign in, and see the overview with its figures."""
        with self._step("overview") as page:
            page.goto(link(self._broker))
            page.get_by_role("heading", name="Overview").wait_for()
            page.locator(".figures").wait_for()
            page.locator(".connection.ok:visible").wait_for()

    def read_the_alarm(self) -> None:
        """The overview leads to it."""
        with self._step("alarm") as page:
            page.get_by_text("1 active alarm").click()
            page.get_by_role("heading", name="Alarms").wait_for()
            page.get_by_text("disk_nearly_full").wait_for()

    def find_a_device_by_a_filter(self) -> None:
        """The search narrows a Topic Filter by a part of the topic."""
        with self._step("all messages") as page:
            self._open("Retained messages")
            self._mode("Search")
            page.get_by_role("table").wait_for()
            page.get_by_text(re.compile("^[0-9,]+ messages")).first.wait_for()
        with self._step("search") as page:
            page.get_by_label("Search by Topic Filter").fill(f"fleet/+/{VEHICLE.rpartition('/')[2]}/#")
            page.get_by_text(re.compile("^5 messages")).first.wait_for()
        with self._step("found") as page:
            self._click(f"{VEHICLE}/battery")
            page.get_by_role("button", name="voltage").wait_for()

    def find_a_sensor_in_the_tree(self) -> None:
        """By keys, as far as the floor that has no messages now; then the vehicle."""
        with self._step("tree") as page:
            self._mode("Tree")
            page.get_by_role("treeitem").first.wait_for()
        with self._step("tree opened") as page:
            page.get_by_role("tree").focus()
            for key in ("Home", "f", "ArrowRight"):
                page.keyboard.press(key)
                page.locator("[role=tree][aria-busy=false]").wait_for()
            page.get_by_role("treeitem", name=re.compile("north")).first.wait_for()

        with self._step("tree counted") as page:
            page.wait_for_function("() => !document.querySelector('[role=tree]').textContent.includes('≥')")

    def see_who_cleared_the_floor(self) -> None:
        """The changes of the subtree name the client and the user."""
        with self._step("changes") as page:
            self._mode("Changes")
            page.get_by_role("table").wait_for()
            page.get_by_label("Changes of a Topic Filter").fill(f"{FLOOR}/#")
            page.get_by_role("row").filter(has_text="cleared").filter(has_text=OPERATOR[0]).first.wait_for()
        with self._step("cleared by whom") as page:
            page.get_by_role("button", name=SENSOR, exact=True).first.click()
            page.get_by_role("tabpanel").get_by_text(f"user {OPERATOR[1]}").first.wait_for()

    def see_its_history(self) -> None:
        """Its values over time, and the difference of two changes."""
        with self._step("history") as page:
            page.get_by_role("img", name=re.compile("value")).wait_for()
        with self._step("difference") as page:
            page.get_by_role("table", name="Changes of this topic").get_by_role("row").nth(3).click()
            page.get_by_role("table", name="Members that differ").wait_for()

    def restore_the_floor(self) -> None:
        """As of yesterday, first as a dry run."""
        with self._step("dry run") as page:
            page.evaluate("topic => { location.hash = '#/retained/tree?topic=' + encodeURIComponent(topic); }", FLOOR)
            page.get_by_role("heading", name=FLOOR).wait_for()
            self._click("Restore…")
            self._click("yesterday")
            self._click("Dry run")
            page.get_by_role("button", name="Change 80 topics").wait_for()
        with self._step("restored") as page:
            self._click("Change 80 topics")
            page.get_by_text("Restored 80 topics").wait_for()
            page.get_by_role("dialog").wait_for(state="detached")

    def watch_a_replay(self) -> None:
        """A client that reads nothing subscribes to everything."""
        self._slow = RawClient(self._broker.port, SLOW)
        self._slow.send(p.Subscribe(1, (p.SubscriptionRequest("#", 1),)))
        with self._step("replay") as page:
            self._open("Replays")
            page.get_by_role("progressbar").wait_for()
            page.get_by_role("row").filter(has_text=SLOW).wait_for()

    def kick_the_client(self) -> None:
        """Find it by a part of its name."""
        with self._step("client found") as page:
            self._open("Clients")
            page.get_by_label("Search clients").fill("wall")
            self._click(SLOW, "link")
            page.get_by_role("button", name="Kick…").wait_for()
        with self._step("kicked") as page:
            self._click("Kick…")
            self._click("Kick")
            page.get_by_text(f"Kicked {SLOW}").wait_for()
            page.get_by_text("There is no such client.").wait_for()
        self._slow.close()

    def all(self) -> None:
        """Walk all the way."""
        self.open_the_link()
        self.read_the_alarm()
        self.find_a_device_by_a_filter()
        self.find_a_sensor_in_the_tree()
        self.see_who_cleared_the_floor()
        self.see_its_history()
        self.restore_the_floor()
        self.watch_a_replay()
        self.kick_the_client()
