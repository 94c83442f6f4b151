"""Reloads are all or nothing, one at a time, and tell what they have done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred, succeed

from holdfast.broker.reloading import Change, Outcome, Reloads, Stopping, lines
from holdfast.config import Config, ConfigError, ConfigProblem, load
from holdfast.config.document import file_states
from tests.logs import logged

USERS = '[authentication.p]\ntype = "file"\npath = "users"\n'
RULES = '[authorization]\nsources = ["r"]\n[authorization.r]\ntype = "file"\npath = "rules.toml"\n'
NO_USERS = "no authentication is configured any more: clients do not prove who they are, and all of them are guests"
NO_RULES = "no rules are configured any more: all clients may publish to and subscribe to all topics"

PROBLEM = ConfigError([ConfigProblem("holdfast.toml", 3, "x.y", "is wrong")])


class FakePart:
    """A part that notes what is done to it, and fails where it is told to."""

    def __init__(self, noted: list[str], number: int) -> None:
        self.noted = noted
        self.number = number
        self.fails = ""
        self.configs: list[Config] = []

    def __call__(self, _running: Config, config: Config) -> Change:
        self._note("prepare")
        self.configs.append(config)
        return Change(
            begin=lambda: self._note("begin"),
            commit=lambda: self._note("commit"),
            abandon=lambda: self._note("abandon"),
        )

    def _note(self, step: str) -> None:
        self.noted.append(f"{step} {self.number}")
        if self.fails == step:
            raise PROBLEM


class Desk:
    """Reloads with three parts. The configuration that is read next is ``file``."""

    def __init__(self, folder: Path, text: str = "") -> None:
        self.folder = folder
        self.noted: list[str] = []
        self.parts = [FakePart(self.noted, number) for number in (1, 2, 3)]
        self.told: list[bool] = []
        self.thread: list[Callable[[], object]] | None = None
        self.write(text)
        config = self.read()
        self.reloads = Reloads(
            config, read=self.read, parts=self.parts, revoke=self.revoke, run=self.run, environment={},
            files=file_states(config, {}), told=self.told.append,
        )  # fmt: skip

    def write(self, text: str) -> None:
        (self.folder / "holdfast.toml").write_text(text)

    def read(self) -> Config:
        return load(self.folder / "holdfast.toml")

    def run(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run it at once, or when the test lets the thread go on."""
        if self.thread is None:
            return maybeDeferred(function)
        done: Deferred[Any] = Deferred()
        self.thread.append(lambda: maybeDeferred(function).chainDeferred(done))
        return done

    def revoke(self, _running: Config, _config: Config) -> Deferred[Mapping[str, int]]:
        self.noted.append("revoke")
        return succeed({"subscriptions": 2, "identities": 0})

    def reload(self) -> Outcome:
        outcomes: list[Outcome] = []
        with logged(Reloads):
            self.reloads.reload("a test").addCallback(outcomes.append)
        return outcomes[0]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_all_parts_prepare_then_all_commit_then_revocations_run(desk: Desk) -> None:
    desk.write("[log]\nconnections = false\n")
    outcome = desk.reload()
    assert desk.noted == [f"{step} {number}" for step in ("prepare", "begin", "commit") for number in (1, 2, 3)] + [
        "revoke"
    ]
    assert [each.key for each in outcome.changed] == ["log.connections"]
    assert outcome.revoked == {"subscriptions": 2, "identities": 0}
    assert desk.told == [True, False]
    assert list(lines(outcome.as_json())) == ["log.connections: true -> false", "2 subscriptions ended"]


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("step", ["prepare", "begin"])
def test_a_problem_of_any_part_changes_nothing(desk: Desk, step: str, failing: int) -> None:
    desk.parts[failing].fails = step
    desk.write("[log]\nconnections = false\n")
    outcome = desk.reload()
    assert [str(problem) for problem in outcome.problems] == ["holdfast.toml:3: x.y: is wrong"]
    assert not any("commit" in noted or "revoke" in noted for noted in desk.noted)
    prepared = {noted[-1] for noted in desk.noted if noted.startswith("prepare")} - (
        {str(failing + 1)} if step == "prepare" else set()
    )
    assert {noted[-1] for noted in desk.noted if noted.startswith("abandon")} == prepared
    assert desk.reloads.config.log.connections
    assert desk.told == [True, False]
    desk.parts[failing].fails = ""
    assert [each.key for each in desk.reload().changed] == ["log.connections"]


def test_all_problems_of_all_parts_are_told(desk: Desk) -> None:
    for part in desk.parts:
        part.fails = "prepare"
    assert len(desk.reload().problems) == 3


def test_a_file_with_problems_changes_nothing(desk: Desk) -> None:
    desk.write("[log]\nconections = false\n[mqtt]\nmax_qos_allowed = 3\n")
    outcome = desk.reload()
    assert [problem.line for problem in outcome.problems] == [2, 4]
    assert not desk.noted
    assert list(lines(outcome.as_json()))[-1] == "nothing was changed"


def test_what_needs_a_restart_is_named_each_time_and_the_rest_is_applied(desk: Desk) -> None:
    desk.write("[node]\nid = 7\n[log]\nconnections = false\n")
    for changed in (["log.connections"], []):
        outcome = desk.reload()
        assert [each.key for each in outcome.changed] == changed
        assert [(each.key, each.old, each.new) for each in outcome.restart] == [("node.id", 1, 7)]
        assert "node.id: 1 -> 7 needs a restart of the broker" in list(lines(outcome.as_json()))
    assert {config.node.id for config in desk.parts[0].configs} == {1}


def test_a_listener_that_stays_open_until_a_restart_is_not_opened_to_strangers(tmp_path: Path) -> None:
    """The new endpoint may be harmless, but the present one stays: so nothing is changed."""
    users = tmp_path / "users"
    users.touch(0o600)
    authentication = '[authentication.p]\ntype = "file"\npath = "users"\n'
    desk = Desk(tmp_path, f'[listeners.a]\nendpoint = "tcp:1883"\nallow_plaintext = true\n{authentication}')
    desk.write('[listeners.a]\nendpoint = "tcp:1883:interface=127.0.0.1"\n')
    outcome = desk.reload()
    assert "no authentication is configured" in str(outcome.problems[0])
    assert not any("commit" in noted for noted in desk.noted)


def test_changed_files_are_named_although_the_configuration_is_the_same(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    desk = Desk(tmp_path, '[authentication.p]\ntype = "file"\npath = "users"\n')
    assert list(lines(desk.reload().as_json()))[:1] == ["2 subscriptions ended"]
    users.write_text("x")
    assert desk.reload().files == [str(users)]
    assert desk.reload().files == []


def test_reloads_that_come_while_one_runs_are_one_more(desk: Desk) -> None:
    desk.thread = []
    outcomes: list[Outcome] = []
    with logged(Reloads):
        for _ in range(3):
            desk.reloads.reload("a test").addCallback(outcomes.append)
        assert len(desk.thread) == 1
        desk.write("[log]\nconnections = false\n")
        desk.thread.pop()()
        assert len(outcomes) == 1
        assert len(desk.thread) == 1
        desk.thread.pop()()
    assert len(outcomes) == 3
    assert outcomes[1] is outcomes[2]
    assert desk.noted.count("prepare 1") == 2


def test_a_broker_that_stops_commits_nothing(desk: Desk) -> None:
    desk.thread = []
    failures: list[Any] = []
    with logged(Reloads):
        desk.reloads.reload("a test").addErrback(failures.append)
        desk.reloads.stop()
        desk.thread.pop()()
        desk.reloads.reload("a test").addErrback(failures.append)
    assert [failure.type for failure in failures] == [Stopping, Stopping]
    assert "abandon 3" in desk.noted
    assert not any("commit" in noted for noted in desk.noted)


def test_an_unexpected_error_is_logged_and_the_next_reload_works(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, logged_failures: list[object]
) -> None:
    def breaks() -> Config:
        raise ZeroDivisionError

    monkeypatch.setattr(desk.reloads, "_read", breaks)
    failures: list[Any] = []
    with logged(Reloads) as events:
        desk.reloads.reload("a test").addErrback(failures.append)
    assert failures[0].type is ZeroDivisionError
    assert any("failed" in event["log_format"] for event in events)
    logged_failures.clear()
    monkeypatch.setattr(desk.reloads, "_read", desk.read)
    assert not desk.reload().problems


def test_an_outcome_without_differences_says_so() -> None:
    assert list(lines(Outcome().as_json())) == ["nothing has changed"]


@pytest.mark.parametrize(
    ("before", "after", "warnings"),
    [
        (USERS + RULES, "", [NO_USERS, NO_RULES]),
        (USERS + RULES, USERS, [f"{NO_RULES}, except that only administrators may read $SYS/#"]),
        (USERS + RULES, RULES, [NO_USERS]),
        (RULES, "", [NO_RULES]),
        (USERS + RULES, USERS + RULES, []),
        ("", USERS, []),
    ],
)
def test_a_protection_that_a_reload_removes_is_warned_of(
    tmp_path: Path, before: str, after: str, warnings: list[str]
) -> None:
    """In the log with a level of its own, and in the answer to the operator; once, not at each later reload."""
    for name in ("users", "rules.toml"):
        (tmp_path / name).touch(0o600)
    desk = Desk(tmp_path, before)
    desk.write(after)
    with logged(Reloads) as events:
        assert list(desk.reload().warnings) == warnings
    told = [event["warning"] for event in events if event["log_level"].name == "warn"]
    assert told == warnings
    assert not any("warning" in event.get("line", "") for event in events)
    assert desk.reload().warnings == ()


def test_the_command_tells_warnings_last() -> None:
    outcome = Outcome(files=["users"], revoked={"identities": 1}, warnings=[NO_USERS])
    assert list(lines(outcome.as_json())) == ["users: read again", "1 identities ended", f"warning: {NO_USERS}"]
