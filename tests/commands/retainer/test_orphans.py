"""``holdfast retainer orphans``, and ``clean --orphans``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from holdfast.commands import main
from holdfast.commands.common import Failed
from holdfast.commands.retainer_replays import Sightings, check_clients_known, clear_orphans
from holdfast.config import Config
from tests.storage.doubles import fresh_file

OLD = 1_600_000_000_000
SINCE = OLD + 1000
LEFT_BEFORE, LEFT_AFTER = "2020-09-13T12:26:40.500Z", "2020-09-13T12:26:41.500Z"


class Broker:
    """Answers the calls for one page of messages, for clients, and for clears."""

    reaches_subscribers = True

    def __init__(self, messages: Mapping[str, tuple[str | None, int]], clients: Mapping[str, dict[str, Any]]) -> None:
        self.messages = dict(messages)
        self.clients = dict(clients)
        self.asked: list[str] = []

    def call(self, method: str, path: str, arguments: Mapping[str, str] = {}, body: bytes = b"") -> Any:
        if path == "/api/v5/clients":
            self.asked.append(arguments["clientid"])
            return {"data": [self.clients[name] for name in self.clients if name == arguments["clientid"]]}
        assert path == "/messages"
        before, after = int(arguments.get("older_than", 2**62)), int(arguments.get("newer_than", 0))
        found = {
            topic: client
            for topic, (client, stored_at) in self.messages.items()
            if after <= stored_at < before and arguments.get("publisher", client) == client
        }
        if method == "DELETE":
            if arguments["dry_run"] == "false":
                self.messages = {topic: at for topic, at in self.messages.items() if topic not in found}
            return {"count": len(found), "meta": {"hasnext": False, "cursor": None}}
        rows = [{"topic": topic, "from_clientid": client} for topic, client in found.items()]
        return {"data": rows, "meta": {"hasnext": False, "cursor": None}}

    def pieces(self, *_: Any) -> Iterator[bytes]:
        raise AssertionError("not called")


@pytest.fixture
def broker() -> Broker:
    """One orphan among clients that are seen, each in another way."""
    return Broker(
        {
            "gone/1": ("gone", OLD), "gone/2": ("gone", OLD), "busy/1": ("busy", OLD), "busy/2": ("busy", SINCE),
            "here": ("here", OLD), "left": ("left", OLD), "away": ("away", OLD), "kept": ("kept", OLD),
            "nobody": (None, OLD),
        },
        {
            "here": {"connected": True, "connected_at": LEFT_BEFORE},
            "left": {"connected": False, "disconnected_at": LEFT_AFTER},
            "away": {"connected": False, "disconnected_at": LEFT_BEFORE},
            "kept": {"connected": False},
        },
    )  # fmt: skip


def test_a_client_is_lost_if_nothing_was_seen_of_it(broker: Broker) -> None:
    """Not one that is connected, has left since, has a Session of unknown age or a newer message.

    Each is asked for once.
    """
    sightings = Sightings(broker, SINCE)
    lost = {client for client, _ in broker.messages.values() if sightings.is_lost(client)}
    assert lost == {"gone", "away"}
    assert sorted(broker.asked) == ["away", "gone", "here", "kept", "left"]


def test_only_messages_of_lost_clients_are_cleared(broker: Broker) -> None:
    """A dry run counts the same messages, and clears none."""
    selected = {"topic": "#", "older_than": str(SINCE), "quiet": "false"}
    before = dict(broker.messages)
    assert clear_orphans(broker, {**selected, "dry_run": "true"}, SINCE, lambda _: None) == 3
    assert broker.messages == before
    assert clear_orphans(broker, {**selected, "dry_run": "false"}, SINCE, lambda _: None) == 3
    assert before.keys() - broker.messages.keys() == {"gone/1", "gone/2", "away"}


def test_a_client_that_comes_back_before_its_clear_keeps_its_messages(broker: Broker) -> None:
    """It is asked for again just before."""
    listed = broker.call

    def call(method: str, path: str, arguments: Mapping[str, str] = {}, body: bytes = b"") -> Any:
        answer = listed(method, path, arguments, body)
        if path == "/api/v5/clients" and arguments["clientid"] == "gone":
            broker.clients["gone"] = {"connected": True}
        return answer

    broker.call = call  # type: ignore[method-assign]
    selected = {"topic": "#", "older_than": str(SINCE), "quiet": "false", "dry_run": "false"}
    assert clear_orphans(broker, selected, SINCE, lambda _: None) == 1
    assert "gone/1" in broker.messages


def test_orphans_are_not_cleared_where_clients_are_unknown(broker: Broker) -> None:
    """On a database that other brokers may use."""
    config = Config()
    sqlite = evolve(config, storage=evolve(config.storage, url="sqlite:////x"))
    check_clients_known(broker, sqlite)
    shared = evolve(config, storage=evolve(config.storage, url="postgresql+psycopg://x/y"))
    with pytest.raises(Failed, match="other brokers"):
        check_clients_known(broker, shared)


def run(*arguments: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["retainer", *arguments], input=given)


def test_without_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orphans are listed by the times of messages, with a word about that. They are not cleared."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fresh_file(tmp_path / "data", "holdfast.db")
    lines = [
        {"topic": "a/old", "payload": "eA==", "client_id": "one", "stored_at": OLD},
        {"topic": "b/old", "payload": "eA==", "client_id": "two", "stored_at": OLD},
        {"topic": "b/new", "payload": "eA==", "client_id": "two"},
        {"topic": "c/old", "payload": "eA==", "stored_at": OLD},
    ]
    imported = run("import", "-", given=b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert imported.exit_code == 0, imported.output
    listed = run("orphans")
    assert listed.stdout.split()[1:] == ["one", "a/old"]
    assert "no broker runs here" in listed.stderr
    assert json.loads(run("orphans", "+/old", "--json").stdout)["publisher"] == "one"
    assert run("orphans", "b/#").stdout == ""
    cleaned = run("clean", "#", "--orphans")
    assert (cleaned.exit_code, cleaned.stdout) == (1, "")
    assert "needs one" in cleaned.stderr
    assert run("clean", "#", "--dry-run").stdout == "4 would be cleared\n"
