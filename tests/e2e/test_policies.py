"""Policies of Topic Filters with a real broker: the snippets of their page, a reload, and the command that explains."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.e2e.makes import needs_mqttjs
from tests.paho import PahoClient
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "extensions" / "policies.md"
INTERVALS = PAGE.with_name("write-interval.md")
LISTENER = '[listeners.default]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
HISTORY = "[retainer.history]\nenable = true\n"


def of_page(language: str, page: Path = PAGE) -> str:
    """Return the first block of a page in a language."""
    return next(block.text for block in blocks(page) if block.language == language)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with the policies of the page."""
    folder = tmp_path_factory.mktemp("policies")
    (folder / "holdfast.toml").write_text(LISTENER + HISTORY + of_page("toml"))
    running = BrokerProcess(
        folder, "--config", str(folder / "holdfast.toml"), listen=False, program=HOLDFAST_RUN
    ).start()
    yield running
    assert running.stop() == (0, "")


def holdfast(broker: BrokerProcess, *command: str) -> str:
    """Return what a command of ``holdfast`` prints about this broker."""
    options = ("--config", str(broker.directory / "holdfast.toml"), "--data-dir", str(broker.directory / "data"))
    return subprocess.run(
        [sys.executable, "-m", "holdfast.commands", *command, *options],
        check=True, capture_output=True, text=True, timeout=PATIENCE,
    ).stdout  # fmt: skip


def output_of(*command: str, program: str) -> str:
    """Return what a command prints that has its program as input; it has to end by itself."""
    return subprocess.run(
        command, input=program, check=True, capture_output=True, text=True, timeout=PATIENCE, cwd=Path(__file__).parent
    ).stdout


def test_the_snippet_in_python(broker: BrokerProcess) -> None:
    """A message without RETAIN 1 reaches a later subscriber."""
    assert output_of(sys.executable, "-", str(broker.port), program=of_page("python")) == "meters/7 21.5 True\n"


@needs_mqttjs
def test_the_snippet_in_javascript(broker: BrokerProcess) -> None:
    """The same with MQTT.js."""
    assert output_of("node", "-", str(broker.port), program=of_page("js")) == "meters/7 21.5 true\n"


@pytest.mark.parametrize("language", ["python", pytest.param("js", marks=needs_mqttjs)])
def test_the_snippets_of_the_write_interval(broker: BrokerProcess, language: str) -> None:
    """The values wait. A command that looks has the newest, and a backup of the running broker has it too."""
    topic = {"python": "plant/7/celsius", "js": "plant/8/celsius"}[language]
    watcher = PahoClient(broker.port)  # a sensor with QoS 0 is gone before the broker has read all of its messages
    watcher.subscribe(topic)
    output_of(*{"python": [sys.executable], "js": ["node"]}[language], "-", str(broker.port),
              program=of_page(language, INTERVALS))  # fmt: skip
    assert [payload for _, payload, *_ in watcher.messages(3)] == [b"20", b"21", b"22"]
    watcher.close()
    copy = broker.directory / language / "holdfast.db"
    copy.parent.mkdir()
    holdfast(broker, "db", "backup", str(copy))
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT payload FROM retained WHERE topic = ?", (topic,)).fetchall() == [(b"22",)]
    assert holdfast(broker, "retainer", "get", topic, "--payload") == "22"


def test_kill_9_loses_nothing_that_the_interval_has_written(tmp_path: Path) -> None:
    """No topic goes back behind its acknowledged message, nor behind the value in the database. QoS 0 waits for it."""
    options = tmp_path / "holdfast.toml"
    options.write_text(LISTENER + '[[retainer.policies]]\nfilter = "w/#"\nwrite_interval = "500ms"\n')
    broker = BrokerProcess(tmp_path, "--config", str(options), listen=False, program=HOLDFAST_RUN).start()
    client = PahoClient(broker.port)
    client.publish("w/acknowledged", b"1", 1, True)
    sent = written = 0
    with closing(sqlite3.connect(tmp_path / "data" / "holdfast.db")) as database:
        until = time.monotonic() + PATIENCE
        while written < 2:  # the first value is written at once, later ones with the interval
            sent += 1
            client.publish("w/a", b"%d" % sent, 0, True)
            client.publish("w/acknowledged", b"waiting", 0, True)
            for (payload,) in database.execute("SELECT payload FROM retained WHERE topic = 'w/a'"):
                written = int(payload)
            assert time.monotonic() < until
    broker.kill()
    client.close()
    broker.start()
    reader = PahoClient(broker.port)
    reader.subscribe("w/#")
    found = {topic: payload for topic, payload, *_ in reader.messages(2)}
    reader.close()
    assert broker.stop() == (0, "")
    assert written <= int(found["w/a"]) <= sent
    assert found["w/acknowledged"] in (b"1", b"waiting")


def test_the_command_explains_the_policies_in_use(broker: BrokerProcess) -> None:
    """It names the policy, and which options are of it; after a reload, it explains the new policies."""
    shown = holdfast(broker, "retainer", "policy", "explain", "plant/7").splitlines()
    assert shown[0] == "plant/7: policy 2, filter plant/#"
    assert '  write_interval = "60s"' in shown
    assert "  announce_expiry = true" in shown
    assert "  force_retain = false  # as for all topics" in shown
    assert "  history = true  # as for all topics" in shown
    assert '  history_keep = "604800s"  # as for all topics' in shown
    holdfast(broker, "retainer", "set", "meters/7", "1")
    (broker.directory / "holdfast.toml").write_text(LISTENER + HISTORY + '[[retainer.policies]]\nfilter = "meters/+"\n')
    told = json.loads(holdfast(broker, "reload", "--json"))
    assert [one["key"] for one in told["changed"]] == ["retainer.policies"]
    explained = json.loads(holdfast(broker, "retainer", "policy", "explain", "meters/7", "--json"))
    assert explained["policy"] == {"number": 1, "filter": "meters/+"}
    assert not any(one["by_policy"] for one in explained["options"])
    holdfast(broker, "retainer", "set", "meters/7", "2")
    recorded = [json.loads(line) for line in holdfast(broker, "retainer", "history", "meters/7", "--json").splitlines()]
    assert [(one["origin"], one["payload"]) for one in recorded] == [("api", "Mg=="), ("baseline", "MQ==")]
