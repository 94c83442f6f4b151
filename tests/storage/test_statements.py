"""Whatever happens between any two statements of the writer, the database holds what was acknowledged, and is in step.

Some places of each kind; ``make faults`` tries all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.logger import LogEvent

from tests.faults.statements import Bench, Cutting, LostAnswer, errors_of, failures, kills

STORES = pytest.mark.parametrize(("store", "step"), [("sqlite", 7), ("postgresql", 41)])


def every(step: int, calls: int) -> range:
    """Return every so many-th place; other ones than from the first on have been seen to find more."""
    assert calls > 25
    return range(step // 2, calls, step)


@STORES
def test_killed(tmp_path: Path, store: str, step: int) -> None:
    """A process that is killed leaves each transaction whole or not at all."""
    result = kills(Bench(store, tmp_path), lambda calls: every(step, calls))
    assert result.broken == []


@STORES
def test_failed(tmp_path: Path, store: str, step: int, logged_failures: list[LogEvent]) -> None:
    """An error is told, and nothing of its transaction stays; what is written again later comes in order."""
    result = failures("", Bench(store, tmp_path), errors_of(store), lambda calls: every(step, calls), whole=False)
    assert result.broken == []
    logged_failures.clear()


def test_cut(tmp_path: Path, logged_failures: list[LogEvent]) -> None:
    """A server's connection that ends delays, but loses and repeats nothing."""
    result = failures("", Bench("postgresql", tmp_path), Cutting, lambda calls: every(53, calls), whole=True)
    assert result.broken == []
    logged_failures.clear()


def test_lost_answers(tmp_path: Path, logged_failures: list[LogEvent]) -> None:
    """A COMMIT that has succeeded without saying so is done again to no effect."""
    result = failures("", Bench("postgresql", tmp_path), LostAnswer, lambda calls: every(7, calls), whole=True)
    assert result.broken == []
    logged_failures.clear()
