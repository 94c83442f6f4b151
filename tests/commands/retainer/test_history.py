"""``holdfast retainer history``, ``restore``, ``replays`` and ``settings`` without a running broker."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.admin.api import history as parts
from holdfast.admin.callers import this_operator
from holdfast.changes import restoring
from holdfast.changes.entries import NOT_RECORDED, Rule, Rules
from holdfast.commands import main
from holdfast.commands import retainer_history as commands
from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.service import RetainedMessages
from tests.changes.history.past import Past
from tests.postgres import drop, fresh_database
from tests.storage.doubles import Wall, fresh_file

LEFT_OUT = "left out, because the history does not know them then: the topics of lamp/1"
#: The history begins an hour ago.
HOUR = 3_600_000


class Store:
    """The database of a stopped broker, and the commands on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.began = time.time_ns() // 1_000_000 - HOUR
        past = Past(url, wall=Wall(self.began)).open()
        for at, topic, payload in (
            (1, "lamp/1", b"on"), (1, "lamp/2", b"\xff\0"), (3, "lamp/1", b"off"), (3, "lamp/2", b""),
            (4, "\u202elamp/\u001b[31m", b"x\ny" * 50),
        ):  # fmt: skip
            past.wall.now = self.began + 1000 * at
            message = ApplicationMessage(topic, payload, 1, True, "alice", "a" if at == 1 else None)
            past.retained.retain(message, ChangeOrigin.PUBLISH)
        past.close()

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["retainer", *arguments, "--storage", self.url])

    def ok(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, *arguments: str) -> str:
        """Run a command that fails; return its message, which is no traceback."""
        result = self.run(*arguments)
        assert result.exit_code == 1, result.output
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        return result.stderr


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    if request.param == "sqlite":
        yield Store(f"sqlite:///{fresh_file(tmp_path / 'data', 'holdfast.db')}")
        return
    url = fresh_database()
    yield Store(url)
    drop(url)


def test_history_lists_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first by default, in lines that are safe for a terminal, with any number of calls."""
    monkeypatch.setattr(commands, "_PAGE", 2)
    lines = store.ok("history").splitlines()
    assert len(lines) == 5
    assert "\\u202elamp/\\x1b[31m  qos 1, 150 bytes: x\\ny" in lines[0]
    assert lines[0].endswith("...")
    assert lines[1].split()[1:] == ["clear", "publish", "alice", "lamp/2"]
    assert lines[3].split("  ")[-2:] == ["lamp/2", "qos 1, 2 bytes: 0xff00"]
    assert "alice (a)" in lines[3]
    assert store.ok("history", "--oldest-first").splitlines() == lines[::-1]
    assert store.ok("history", "lamp/#", "--limit", "3").splitlines() == lines[1:4]
    since = str(store.began + 2500)
    assert store.ok("history", "--since", since, "lamp/+").splitlines() == lines[1:3]
    assert store.ok("history", "--until", since).splitlines() == lines[3:]
    record = json.loads(store.ok("history", "lamp/1", "--json").splitlines()[0])
    assert (record["topic"], record["payload"], record["from_clientid"]) == ("lamp/1", "b2Zm", "alice")
    assert store.ok("history", "nothing/here") == ""


def test_at_shows_the_messages_of_a_past_time(store: Store) -> None:
    then = ("--at", str(store.began + 2000))
    assert store.ok("topics", *then) == "lamp/1\nlamp/2\n"
    assert store.ok("get", "lamp/1", "--payload", *then) == "on"
    assert len(store.ok("export", *then).splitlines()) == 2
    assert store.refused("get", "lamp/3", *then) == "lamp/3: had no retained message\n"


def test_a_restore_counts_asks_and_restores(store: Store) -> None:
    """Its report is exact. Topics that it does not restore stay cleared, and its changes are recorded."""
    then = ("--at", str(store.began + 2000))
    store.ok("clean", "lamp/#")
    assert store.ok("restore", "#", *then, "--dry-run") == (
        "2 would be restored, 1 had no message then and stay (--clear clears them)\n"
    )
    counts = json.loads(store.ok("restore", "#", *then, "--dry-run", "--json"))
    assert (counts["restored"], counts["kept"], counts["refused"]) == (2, 1, 0)
    told = store.refused("restore", "#", *then)
    assert "2 would be restored" in told
    assert "give --yes" in told
    assert store.ok("topics") == "\\u202elamp/\\x1b[31m\n"
    assert store.ok("restore", "lamp/2", *then, "--yes") == "1 restored\n"
    assert store.ok("topics", "lamp/#") == "lamp/2\n"
    assert (
        store.ok("restore", "#", *then, "--yes", "--clear") == "1 restored, 1 cleared, 1 still had the same message\n"
    )
    assert store.ok("restore", "#", *then, "--yes") == "0 restored, 2 still had the same message\n"
    assert store.ok("restore", "#", *then) == ""
    assert json.loads(store.ok("restore", "#", *then, "--json"))["unchanged"] == 2
    newest = [line.split()[1:3] for line in store.ok("history", "--limit", "3").splitlines()]
    assert sorted(newest) == [["clear", "restore"], ["set", "restore"], ["set", "restore"]]
    (line,) = store.ok("history", "lamp/2", "--limit", "1").splitlines()
    assert f"  alice (a) (operator {this_operator()})  lamp/2  " in line


def test_times_without_an_answer_are_refused(store: Store) -> None:
    """The message names the earliest time, the allowed forms of times, or the key to set."""
    earliest = store.refused("restore", "#", "--at", "2h", "--yes")
    assert "the earliest possible time is 20" in earliest
    wrong = store.run("topics", "--at", "yesterday")
    assert wrong.exit_code == 2
    assert "2026-11-21T10:00:00Z" in wrong.stderr
    assert store.run("history", "a#").exit_code == 2
    assert "is still to come" in store.refused("topics", "--at", "2999-01-01")
    assert store.run("restore", "#").exit_code == 2
    assert store.run("history", "--limit", "0").exit_code == 2


def test_changes_are_recorded_even_without_the_broker_s_configuration(store: Store) -> None:
    """Else such a command would leave a gap in the broker's history."""
    store.ok("set", "lamp/1", "by hand")
    assert store.ok("history", "--limit", "1").split()[1:7] == [
        "set",
        "api",
        "-",
        "(operator",
        f"{this_operator()})",
        "lamp/1",
    ]
    past = Past(store.url, wall=Wall(store.began + 2 * HOUR)).open()
    assert past.in_step()
    assert past.query("SELECT count(*) FROM retained_history_periods") == [(1,)]
    past.close()


def test_without_a_broker_there_are_no_replays_and_no_settings(store: Store) -> None:
    assert "retainer.delivery_rate = " in store.ok("settings")
    assert "no broker runs" in store.refused("settings", "delivery_rate=1/s")
    assert store.ok("replays") == ""
    assert "there is no replay 3" in store.refused("replays", "--cancel", "3")
    assert store.run("settings", "delivery_rate").exit_code == 2
    assert store.run("settings", "a=1", "a.b=2").exit_code == 2


def test_ctrl_c_ends_a_restore_between_two_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current transaction is finished, and the command reports its progress."""
    then = ("--at", str(store.began + 2000), "--yes")
    store.ok("clean", "lamp/#")
    monkeypatch.setattr(parts, "_TOPICS", 1)
    monkeypatch.setattr(restoring, "_TOPICS", 1)
    retain = RetainedMessages.retain

    def interrupted(*given: Any, **named: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return retain(*given, **named)

    monkeypatch.setattr(RetainedMessages, "retain", interrupted)
    result = store.run("restore", "lamp/#", *then)
    assert result.exit_code == 1
    assert "done until then: 1 restored; repeat the command to continue" in result.stderr
    assert "failed" not in result.stderr
    monkeypatch.setattr(RetainedMessages, "retain", retain)
    assert store.ok("topics", "lamp/#") == "lamp/1\n"
    assert store.ok("restore", "lamp/#", *then) == "1 restored, 1 still had the same message\n"


def test_without_a_history_the_key_to_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fresh_file(tmp_path / "data", "holdfast.db")
    result = CliRunner().invoke(main, ["retainer", "history"])
    assert result.exit_code == 1
    assert result.stderr == "no history is kept; set retainer.history.enable = true\n"


def test_changes_by_commands_alone_are_listed_but_no_past_time_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal says why, and does not deny the history that is listed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "holdfast.toml").write_text("retainer.history.enable = true\n")
    fresh_file(tmp_path / "data", "holdfast.db")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["retainer", *arguments, "--config", "holdfast.toml"])

    assert "no broker has recorded changes" in run("restore", "#", "--at", "0s", "--dry-run").stderr
    assert run("set", "a", "on").exit_code == 0
    assert "api" in run("history").stdout
    for arguments in (("restore", "#", "--at", "0s", "--dry-run"), ("get", "a", "--at", "0s")):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "only changes made by commands while no broker ran" in result.stderr


def test_commands_follow_the_rules_of_the_database(store: Store) -> None:
    """Without a broker they record what the last one recorded, and a restore names the topics that it leaves alone."""
    rules = Rules([Rule("lamp/1", NOT_RECORDED)])
    then = store.began + HOUR // 2
    Past(store.url, rules=rules, wall=Wall(then)).open().close()
    store.ok("set", "lamp/1", "new")
    store.ok("set", "lamp/3", "new")
    listed = store.ok("history", "--since", str(then + 1)).splitlines()
    assert [line.split()[6] for line in listed] == ["lamp/3"]
    result = store.run("restore", "lamp/#", "--at", str(then), "--clear", "--yes")
    assert result.stdout == "0 restored, 1 cleared\n"
    assert LEFT_OUT in result.stderr
    for command in ("topics", "export"):
        assert LEFT_OUT in store.run(command, "--at", str(then)).stderr
    assert store.ok("get", "lamp/1", "--payload") == "new"
    told = json.loads(store.ok("restore", "lamp/#", "--at", str(then), "--dry-run", "--json"))
    assert told["left_out"] == ["lamp/1"]
