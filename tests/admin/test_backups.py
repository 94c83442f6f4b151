"""Calls about backups: a job that tells its progress, and files that nobody else can name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast.admin.api.backups import BACKUP_PATH, BACKUPS_PATH, BackupCalls
from holdfast.admin.call import Call, Caller, Scope
from holdfast.admin.jobs import Job, Jobs, State
from holdfast.admin.routing import RoutingTable
from holdfast.core.tickets import CommitTicket
from holdfast.storage.location import StoreUnusable
from tests.storage.doubles import result_of

NOW = 1_800_000_000_123
NAME = "holdfast-20270115T080000123Z.db"
ALICE = Caller("alice", 1000, frozenset({Scope.ADMIN}))


class Desk:
    """The calls, with a database that is copied when :meth:`work` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "backups"
        self.jobs = Jobs(lambda: NOW)
        self.failure: Exception | None = None
        self.waiting: list[Callable[[], None]] = []
        self.waits = True
        self.table = RoutingTable(BackupCalls(self.folder, self._copy, self.jobs, self._run, lambda: NOW).routes)

    def call(self, method: str, path: str) -> tuple[int, Any]:
        found = result_of(self.table.answer(Call(method, path, {}, b"", ALICE)))
        return found.status, json.loads(found.body) if found.body else None

    def begin(self) -> Job:
        self.waits = True
        assert self.call("POST", BACKUP_PATH)[0] == 202
        self.waits = False
        return self.jobs.all()[-1]

    def work(self) -> None:
        self.waiting.pop()()

    def _run(self, function: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def work() -> None:
            try:
                result = function()
            except Exception:
                done.errback()
            else:
                done.callback(result)

        if self.waits:
            self.waiting.append(work)
        else:
            work()
        return done

    def _copy(self, target: Path, report: Callable[[int, int], None]) -> None:
        report(1, 2)
        if self.failure is not None:
            raise self.failure
        target.write_bytes(b"copy")
        report(2, 2)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_backup_is_made_listed_and_deleted(desk: Desk) -> None:
    job = desk.begin()
    assert job.state is State.RUNNING
    desk.work()
    assert (job.state, job.done, job.total) == (State.DONE, 2, 2)
    assert job.result["name"] == NAME
    assert desk.folder.stat().st_mode & 0o777 == 0o700
    (desk.folder / "other.txt").write_text("not a backup")
    _, content = desk.call("GET", BACKUPS_PATH)
    assert [(each["name"], each["size"]) for each in content["data"]] == [(NAME, 4)]
    assert desk.call("DELETE", f"{BACKUPS_PATH}/{NAME}") == (204, None)
    assert desk.call("DELETE", f"{BACKUPS_PATH}/{NAME}")[0] == 404
    assert desk.call("GET", BACKUPS_PATH) == (200, {"data": []})


def test_a_backup_waits_for_what_is_accepted_but_not_written(desk: Desk) -> None:
    """Messages of a write_interval are written first."""
    waiting = CommitTicket()
    calls = BackupCalls(desk.folder, desk._copy, desk.jobs, desk._run, lambda: NOW, lambda: waiting)
    desk.waits = False
    result_of(RoutingTable(calls.routes).answer(Call("POST", BACKUP_PATH, {}, b"", ALICE)))
    assert not desk.folder.exists()
    waiting.settle(None)
    assert [file.name for file in desk.folder.iterdir()] == [NAME]


def test_one_backup_is_made_at_a_time(desk: Desk) -> None:
    desk.begin()
    assert desk.call("POST", BACKUP_PATH)[1]["code"] == "BUSY"
    desk.work()
    desk.begin()


@pytest.mark.parametrize("failure", [StoreUnusable("the disk is full"), OSError(28, "No space left on device")])
def test_a_backup_that_fails_says_why(desk: Desk, failure: Exception) -> None:
    """Another one can be begun."""
    job = desk.begin()
    desk.failure = failure
    desk.work()
    assert job.state is State.FAILED
    assert job.problem == str(failure)
    desk.failure = None
    desk.begin()


def test_a_cancelled_backup_ends_in_its_thread(desk: Desk) -> None:
    job = desk.begin()
    desk.jobs.cancel(job)
    assert job.state is State.CANCELLED
    assert desk.call("POST", BACKUP_PATH)[1]["code"] == "BUSY"
    desk.work()
    assert list(desk.folder.iterdir()) == []
    desk.begin()


@pytest.mark.parametrize("name", ["other.txt", "..%2Fholdfast.db", "%2Fetc%2Fpasswd", NAME + "%00", "%0A" + NAME])
def test_only_backups_are_deleted(desk: Desk, name: str) -> None:
    desk.folder.mkdir()
    (desk.folder / "other.txt").write_text("not a backup")
    assert desk.call("DELETE", f"{BACKUPS_PATH}/{name}")[0] == 404
    assert (desk.folder / "other.txt").exists()


def test_postgres_is_backed_up_by_its_own_tools(desk: Desk, tmp_path: Path) -> None:
    calls = BackupCalls(tmp_path, None, desk.jobs, desk._run, lambda: NOW)
    answer = result_of(RoutingTable(calls.routes).answer(Call("POST", BACKUP_PATH, {}, b"", ALICE)))
    assert answer.status == 501
    assert b"pg_dump" in answer.body
