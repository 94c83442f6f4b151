"""``holdfast retainer`` over the network: with a password, over TLS, and only what the user may see."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.commands import main
from tests.certificates import Authority
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

CONFIG = """\
[listeners.tls]
endpoint = "tcp:0:interface=127.0.0.1"
tls = { certificate = "server.pem", key = "server.key" }
authentication = ["passwords"]

[authentication.passwords]
type = "file"
path = "passwords"

[authorization]
sources = ["rules"]

[authorization.rules]
type = "file"
path = "rules.toml"
"""
RULES = """\
[[rule]]
users = ["alice"]
action = ["subscribe", "receive"]
topics = ["plant/#", "holdfast/answers/+"]
allow = true
"""


class Place:
    """A broker with TLS and one user, and its address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority()
        authority.write(folder, "ca")
        authority.issue("localhost", ["localhost"]).write(folder, "server")
        (folder / "holdfast.toml").write_text(CONFIG)
        (folder / "rules.toml").write_text(RULES)
        (folder / "password").write_text("secret\n")
        self.holdfast("passwd", "add", "passwords", "alice", given="secret\n")
        self.broker = BrokerProcess(folder, "--config", "holdfast.toml", listen=False, program=HOLDFAST_RUN)
        self.broker.start()
        for topic in ("plant/1/a", "plant/2", "office/1"):
            self.holdfast("retainer", "set", topic, "on", "--data-dir", "data")
        self.url = f"mqtts://localhost:{self.broker.port}"

    def holdfast(self, *arguments: str, given: str | None = None) -> str:
        """Run a command that succeeds, in the broker's folder."""
        command = [sys.executable, "-m", "holdfast.commands", *arguments]
        return subprocess.run(
            command, cwd=self.folder, input=given, check=True, capture_output=True, text=True, timeout=PATIENCE
        ).stdout

    def remotely(self, *arguments: str, status: int = 0, known: bool = True) -> str:
        """Run a command on the address; return what it prints."""
        ca = ["--ca", str(self.folder / "ca.pem")] if known else []
        options = ["--url", self.url, "--username", "alice", "--password-file", str(self.folder / "password"), *ca]
        result = CliRunner().invoke(main, ["retainer", *arguments, *options])
        assert result.exit_code == status, result.output
        return result.output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("asking"))
    yield made
    made.broker.end()


def test_commands_tell_what_the_user_may_see(place: Place) -> None:
    """The output has the forms that it has on the broker's machine."""
    assert place.remotely("topics", "plant/#") == "plant/1/a\nplant/2\n"
    assert place.remotely("get", "plant/2", "--payload") == "on"
    line = json.loads(place.remotely("get", "plant/2"))
    local = json.loads(place.holdfast("retainer", "get", "plant/2", "--data-dir", "data"))
    assert line == {**local, "client_id": None, "username": None}
    assert place.remotely("count", "plant/#").startswith("retained messages: 2\nbytes: ")
    assert json.loads(place.remotely("count", "plant/#", "--json"))["count"] == 2
    nodes = [json.loads(line) for line in place.remotely("tree", "plant", "--json").splitlines()]
    assert [(node["topic"], node["count"]) for node in nodes] == [("plant/1", 1), ("plant/2", 1)]
    shown = place.remotely("tree", "plant").splitlines()
    assert [line.split()[2] for line in shown] == ["plant/1/#", "plant/2"]


def test_refusals_are_told(place: Place) -> None:
    """What is not allowed, not there, or not trusted ends with one sentence."""
    assert "you may not subscribe" in place.remotely("count", "office/#", status=1)
    assert place.remotely("get", "plant/9", status=1) == "plant/9: has no retained message\n"
    assert "TLS fails" in place.remotely("topics", status=1, known=False)
    assert "--response-topic" in place.remotely("topics", "--response-topic", "other/topic", status=1)
    assert "Give --url or --at, not both." in place.remotely("topics", "--at", "90m", status=2)
    for url in ("mqtts://", "http://localhost", "mqtt://localhost:x"):
        result = CliRunner().invoke(main, ["retainer", "topics", "--url", url])
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
    result = CliRunner().invoke(main, ["retainer", "topics", "--url", place.url, "--ca", str(place.folder / "ca.pem")])
    assert (result.exit_code, "refuses the connection" in result.output) == (1, True)
