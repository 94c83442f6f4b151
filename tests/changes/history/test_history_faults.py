"""Retained messages and history agree, whichever statement the database fails at."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.changes import history
from holdfast.changes.history import HistoryLimits
from holdfast.core.messages import ChangeKind
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.storage import store
from tests.changes.history.past import Past
from tests.storage.doubles import Faults, FaultyDatabase, fresh_file


def script(past: Past) -> list[tuple[str, bytes, CommitTicket]]:
    """Change topics in groups, let some expire, and prune; return all changes."""
    put: list[tuple[str, bytes, CommitTicket]] = []
    for turn in range(3):
        past.executor.manual = True
        for number in range(4):
            for topic in ("a", f"t/{number}"):
                payload = b"%d %d" % (turn, number) if (turn + number) % 3 else b""
                expires_at = past.wall.now + 5 if number == 1 else None
                put.append((topic, payload, past.set(topic, payload, expires_at=expires_at)))
        while past.executor.waiting:
            past.executor.step()
        past.executor.manual = False
        past.wall.now += 10
        past.finish(past.store.expire(past.wall.now, 10).addErrback(lambda failure: failure.trap(StorageFailure)))
        past.tend()
    return put


def opened(path: Path, faults: Faults, keep: float, monkeypatch: pytest.MonkeyPatch) -> Past:
    """Open a store whose writer meets the faults."""
    with monkeypatch.context() as patched:
        patched.setattr(store, "open_database", lambda *_: FaultyDatabase(path, faults))
        patched.setattr(store, "prepare", lambda *_: None)
        past = Past(f"sqlite:///{path}", limits=HistoryLimits(enable=True, keep=keep)).open()
    faults.calls = 0
    return past


def run(path: Path, fail_at: int | None, also_rollback: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the script with a fault, and check; return how many calls the database had."""
    faults = Faults()
    past = opened(path, faults, 1000, monkeypatch)
    faults.fail_at, faults.also_rollback = fail_at, also_rollback
    put = script(past)
    faults.fail_at = None
    assert past.in_step()
    recorded = [(one.topic, one.payload) for one in past.events() if one.kind is not ChangeKind.EXPIRE]
    assert recorded == [(topic, payload) for topic, payload, ticket in put if ticket.failure is None]
    calls = faults.calls
    past.close()
    return calls


@pytest.mark.parametrize("also_rollback", [False, True])
def test_messages_and_history_agree_after_any_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also_rollback: bool
) -> None:
    """An acknowledged change is in both, once; an unacknowledged change is in neither."""
    monkeypatch.setattr(history, "_PRUNED_ROWS", 3)
    calls = run(fresh_file(tmp_path), None, False, monkeypatch)
    assert calls > 60
    for fail_at in range(calls):
        run(fresh_file(tmp_path, f"{fail_at}.db"), fail_at, also_rollback, monkeypatch)


def test_a_failed_pruning_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of the pruning is complete or has no effect. The next round repeats it."""
    monkeypatch.setattr(history, "_PRUNED_ROWS", 3)
    for fail_at in range(40):
        faults = Faults()
        past = opened(fresh_file(tmp_path, f"{fail_at}.db"), faults, 0.015, monkeypatch)
        for number in range(6):
            past.set(f"{number % 2}", b"%d" % number)
            past.wall.now += 10
        faults.calls, faults.fail_at = 0, fail_at
        past.tend()
        faults.fail_at = None
        assert past.in_step()
        past.tend()
        assert [one.payload for one in past.events()] == [b"3", b"4", b"5"]
        assert past.query("SELECT bytes FROM retained_history_state") == [(3 * (1 + 1 + 1 + 200),)]
        past.close()
