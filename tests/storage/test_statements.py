"""After any fault between two statements of the writer, the database has all acknowledged changes, and its tables
agree.

Some places of each kind; ``make faults`` tries all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.logger import LogEvent

from tests.faults.statements import Bench, Cutting, LostAnswer, errors_of, failures, kills

STORES = pytest.mark.parametrize(("store", "step"), [("sqlite", 7), ("postgresql", 41)])


def every(step: int, calls: int) -> range:
    """Return every ``step``-th position, not counted from 0: such positions found more faults."""
    assert calls > 25
    return range(step // 2, calls, step)


@STORES
def test_killed(tmp_path: Path, store: str, step: int) -> None:
    """A killed process leaves each transaction complete or not at all."""
    result = kills(Bench(store, tmp_path), lambda calls: every(step, calls))
    assert result.broken == []


@STORES
def test_failed(tmp_path: Path, store: str, step: int, logged_failures: list[LogEvent]) -> None:
    """An error is reported, and its transaction leaves nothing; rows that are written again keep their order."""
    result = failures("", Bench(store, tmp_path), errors_of(store), lambda calls: every(step, calls), whole=False)
    assert result.broken == []
    logged_failures.clear()


def test_cut(tmp_path: Path, logged_failures: list[LogEvent]) -> None:
    """A closed connection delays changes, but loses and repeats none."""
    result = failures("", Bench("postgresql", tmp_path), Cutting, lambda calls: every(53, calls), whole=True)
    assert result.broken == []
    logged_failures.clear()


def test_lost_answers(tmp_path: Path, logged_failures: list[LogEvent]) -> None:
    """The repetition of a COMMIT whose answer was lost has no effect."""
    result = failures("", Bench("postgresql", tmp_path), LostAnswer, lambda calls: every(7, calls), whole=True)
    assert result.broken == []
    logged_failures.clear()
