"""The page on exposing a broker: every block of it, typed from an empty folder, shows what the page says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.e2e.makes import HERE, needs_mosquitto
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("security-page"), needs_mosquitto]

PAGE = ROOT / "docs" / "operator" / "security.md"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
BUNDLE = HERE.parent / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"
needs_browser = pytest.mark.skipif(CHROMIUM is None or not BUNDLE.exists(), reason="Chromium or MQTT.js is missing")

_STEP = re.compile(r"(?:Write the file `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Shell:
    """A terminal: what a block changes, such as the folder, holds for the next one."""

    def __init__(self, folder: Path, path: str) -> None:
        self._process = subprocess.Popen(
            ["sh"], cwd=folder, env={**os.environ, "PATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def types(self, block: str) -> str:
        """Return what the commands print."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{{ {block}\n}} < /dev/null\necho END-OF-BLOCK\n")
        self._process.stdin.flush()
        lines: list[str] = []
        while (line := self._process.stdout.readline()) != "END-OF-BLOCK\n":
            assert line, f"the shell has ended: {lines}"
            lines.append(line)
        return "".join(lines)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


class Walk:
    """A newcomer who follows the page section by section, on free ports."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.folder = folder / "broker"
        programs = folder / "bin"
        programs.mkdir()
        # The page fetches MQTT.js from the Internet.
        (programs / "curl").write_text(f'#!/bin/sh\nexec cp "{BUNDLE}" "$2"\n')
        (programs / "curl").chmod(0o755)
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._shell = Shell(folder, path)
        self._ends = contextlib.ExitStack()
        self._ends.callback(self._shell.close)
        self.ports = {port: lasting_port() for port in (8883, 8084, 8000)}
        text = PAGE.read_text(encoding="utf-8")
        for page, free in self.ports.items():
            text = re.sub(rf"\b{page}\b", str(free), text)
        first, *others = text.split("\n## ")
        self._sections = {"": first, **{each.partition("\n")[0].partition(". ")[0]: each for each in others}}
        self.shown: list[str] = []
        self.broker: BrokerProcess | None = None

    def until(self, last: int) -> None:
        """Follow the numbered sections up to this one that have not been followed yet."""
        for title in ("", *map(str, range(1, last + 1))):
            self.only(title)

    def only(self, title: str) -> None:
        """Follow the section with this number or title, unless it has been followed."""
        self._follow(self._sections.pop(title, ""))

    def _follow(self, section: str) -> None:
        printed = ""
        for name, language, block in _STEP.findall(section):
            if name:
                (self.folder / name).write_text(block, encoding="utf-8")
            elif language == "sh":
                assert printed == "", f"the page does not show what it prints: {printed}"
                printed = self._type(block)
            elif language == "text":
                assert self._normal(printed) == block
                printed = ""
            elif language == "page":
                self.shown.append(block)
        assert printed == "", f"the page does not show what it prints: {printed}"

    def _type(self, block: str) -> str:
        if block.startswith("holdfast run"):
            assert block == "holdfast run --config holdfast.toml\n"
            return self._start()
        if block.startswith("python3 -m http.server"):
            return self._serve(block)
        return self._shell.types(block)

    def _start(self) -> str:
        self.broker = BrokerProcess(self.folder, "--config", "holdfast.toml", listen=False, program=HOLDFAST_RUN)
        self._ends.callback(self.broker.end)
        self.broker.start()
        return "".join(f"{line}\n" for line in self.broker.lines if not line.startswith("{"))

    def _serve(self, block: str) -> str:
        server = subprocess.Popen(
            [sys.executable, *block.split()[1:]],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._ends.callback(server.wait)
        self._ends.callback(server.kill)
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[8000])):
                return ""
            assert time.monotonic() < deadline, "the web server does not start"
            time.sleep(0.05)

    def _normal(self, printed: str) -> str:
        return printed.replace(str(self.home), "/home/you")

    def close(self) -> None:
        lines = [] if self.broker is None else self.broker.lines
        self._ends.close()
        assert "Traceback" not in "\n".join(lines)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    walk = Walk(tmp_path_factory.mktemp("security"))
    yield walk
    walk.close()


def test_a_sensor_writes_below_its_own_name_and_a_dashboard_reads_and_nothing_else(walk: Walk) -> None:
    """With mosquitto's clients and with paho, over TLS. What is refused is refused as the page says."""
    walk.until(7)
    audit = walk.folder / "audit.log"
    deadline = time.monotonic() + PATIENCE
    while (count := audit.read_text().count('"event":"denied"')) < 5:  # the broker gathers lines before it writes them
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert count == 5
    assert audit.read_text().count('"event":"refused"') == 3


@needs_browser
def test_a_page_in_a_browser_shows_the_values_and_cannot_write(walk: Walk) -> None:
    from playwright.sync_api import expect, sync_playwright

    walk.until(8)
    (connected, *values), refusals = (block.splitlines() for block in walk.shown)
    password = (walk.folder / "dashboard.password").read_text().strip()

    def log_in(page: Any, password: str) -> None:
        page.goto(f"http://localhost:{walk.ports[8000]}/")
        page.fill("#password", password)
        page.get_by_text("Connect", exact=True).click()

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        # Like a visitor who has accepted the certificate.
        page = browser.new_context(ignore_https_errors=True).new_page()
        log_in(page, password)
        expect(page.locator("#status")).to_have_text(connected)
        expect(page.locator("#values li")).to_have_text(values)
        page.click("#write")
        expect(page.locator("#status")).to_have_text(refusals[0])
        log_in(page, "guess")
        expect(page.locator("#status")).to_have_text(refusals[1])
        browser.close()


def test_a_removed_user_is_refused(walk: Walk) -> None:
    walk.until(7)
    walk.only("9")


def test_doctor_finds_no_problem(walk: Walk) -> None:
    walk.until(5)
    walk.only("On a server")
    assert " 0 problems" in (walk.folder / "doctor.txt").read_text()
