"""Policies of Topic Filters with a real broker: the snippets of their page, a reload, and the command that explains."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.e2e.makes import needs_mqttjs
from tests.processes import HOLDFAST_RUN, BrokerProcess

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "extensions" / "policies.md"
LISTENER = '[listeners.default]\nendpoint = "tcp:0:interface=127.0.0.1"\n'


def of_page(language: str) -> str:
    """Return the first block of the page in a language."""
    return next(block.text for block in blocks(PAGE) if block.language == language)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with the policies of the page."""
    folder = tmp_path_factory.mktemp("policies")
    (folder / "holdfast.toml").write_text(LISTENER + of_page("toml"))
    running = BrokerProcess(
        folder, "--config", str(folder / "holdfast.toml"), listen=False, program=HOLDFAST_RUN
    ).start()
    yield running
    assert running.stop() == (0, "")


def holdfast(broker: BrokerProcess, *command: str) -> str:
    """Return what a command of ``holdfast`` prints about this broker."""
    options = ("--config", str(broker.directory / "holdfast.toml"), "--data-dir", str(broker.directory / "data"))
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *command, *options],
        check=True, capture_output=True, text=True, timeout=20,
    ).stdout  # fmt: skip


def output_of(*command: str, program: str) -> str:
    """Return what a command prints that has its program as input; it has to end by itself."""
    return subprocess.run(
        command, input=program, check=True, capture_output=True, text=True, timeout=20, cwd=Path(__file__).parent
    ).stdout


def test_the_snippet_in_python(broker: BrokerProcess) -> None:
    """A message without RETAIN 1 reaches a later subscriber."""
    assert output_of(sys.executable, "-", str(broker.port), program=of_page("python")) == "meters/7 21.5 True\n"


@needs_mqttjs
def test_the_snippet_in_javascript(broker: BrokerProcess) -> None:
    """The same with MQTT.js."""
    assert output_of("node", "-", str(broker.port), program=of_page("js")) == "meters/7 21.5 true\n"


def test_the_command_explains_the_policies_in_use(broker: BrokerProcess) -> None:
    """It prints what the page shows; after a reload, it explains the new policies."""
    shown = of_page("console").partition("\n")[2]
    assert holdfast(broker, "retainer", "policy", "explain", "meters/7") == shown
    (broker.directory / "holdfast.toml").write_text(LISTENER + '[[retainer.policies]]\nfilter = "meters/+"\n')
    told = json.loads(holdfast(broker, "reload", "--json"))
    assert [one["key"] for one in told["changed"]] == ["retainer.policies"]
    explained = json.loads(holdfast(broker, "retainer", "policy", "explain", "meters/7", "--json"))
    assert explained["policy"] == {"number": 1, "filter": "meters/+"}
    assert not any(one["by_policy"] for one in explained["options"])
