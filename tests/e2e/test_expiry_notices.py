"""The snippets of docs/extensions/announce-expiry.md with real clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.e2e.makes import needs_mqttjs
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "extensions" / "announce-expiry.md"


def block(language: str) -> str:
    """Return the block of the page in a language."""
    (found,) = [each.text for each in blocks(PAGE) if each.language == language]
    return found


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of one broker with the page's configuration."""
    folder = tmp_path_factory.mktemp("expiry")
    (folder / "h.toml").write_text(block("toml"))
    broker = BrokerProcess(folder, "--config", "h.toml").start()
    yield broker.port
    assert broker.stop() == (0, "")


@pytest.mark.parametrize(
    ("language", "command"),
    [("python", sys.executable), pytest.param("js", "node", marks=needs_mqttjs)],
)
def test_the_snippets(port: int, language: str, command: str) -> None:
    """Each sees its message, and then that it has expired."""
    told = subprocess.run(
        [command, "-", str(port)], input=block(language), check=True, capture_output=True, text=True, timeout=PATIENCE,
        cwd=Path(__file__).parent,
    ).stdout  # fmt: skip
    topic = f"pump/{'py' if language == 'python' else 'js'}/state"
    assert told == f"{topic} online\n{topic} has expired\n"
