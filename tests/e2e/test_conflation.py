"""The snippets of docs/extensions/conflate.md with real clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from paho.mqtt import publish

from tests.docs.pages import ROOT, blocks
from tests.e2e.makes import needs_mqttjs
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "extensions" / "conflate.md"
LEVELS = 300


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of one broker."""
    broker = BrokerProcess(tmp_path_factory.mktemp("conflation")).start()
    yield broker.port
    assert broker.stop() == (0, "")


def told(port: int, language: str, *command: str) -> Sequence[str]:
    """Run a snippet of the page, flood it with values and end with "off"; return the lines that it prints."""
    (program,) = [block.text for block in blocks(PAGE) if block.language == language]
    with subprocess.Popen(
        [*command, "-", str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent,
    ) as running:  # fmt: skip
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            running.stdin.write(program)
            running.stdin.close()
            assert running.stdout.readline() == "subscribed\n"
            levels = [("display/level", b"%d" % level, 1, True) for level in range(LEVELS)]
            events = [("display/event", b"%d" % event, 1, False) for event in range(3)]
            publish.multiple([*levels, *events, ("display/level", b"off", 1, True)], "127.0.0.1", port)
            lines = running.stdout.read().splitlines()
            assert running.wait(timeout=PATIENCE) == 0
        finally:
            running.kill()
    publish.single("display/level", b"", 1, True, "127.0.0.1", port)
    return lines


def check(lines: Sequence[str]) -> None:
    """The first value and the last one have come, not all between them, and all events."""
    levels = [line for line in lines if line.startswith("display/level")]
    assert levels[0] == "display/level 0"
    assert levels[-1] == "display/level off"
    assert len(levels) < LEVELS
    assert [line for line in lines if line.startswith("display/event")] == [f"display/event {n}" for n in range(3)]


def test_the_snippet_in_python(port: int) -> None:
    """It prints the first value, all events and the newest value."""
    check(told(port, "python", sys.executable))


@needs_mqttjs
def test_the_snippet_in_javascript(port: int) -> None:
    """The same with MQTT.js."""
    check(told(port, "js", "node"))
