"""Phases tell what a job does now, and how much of it is done."""

from __future__ import annotations

import pytest

from holdfast_pipeline.progress import (
    Amount,
    Figures,
    Phases,
    Tasks,
    follow_tasks,
    gathered,
    phase,
    progressed,
)


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def phases(clock: Seconds) -> Phases:
    return Phases("export", clock)


def test_the_innermost_phase_is_shown(phases: Phases) -> None:
    """And none outside of all."""
    with gathered(phases):
        with phase("reading"):
            with phase("copying"):
                assert phases.figures() == Figures("copying", "rows", 0, None, 0.0)
            assert phases.figures() == Figures("reading", "rows", 0, None, 0.0)
        assert phases.figures() is None


def test_rate_and_time_left_follow_from_what_is_done(phases: Phases, clock: Seconds) -> None:
    """They are unknown before something is done."""
    with gathered(phases), phase("writing", 1000) as writing:
        clock.now = 5.0
        before = phases.figures()
        writing.add(150)
        progressed(200, 1000)
        after = phases.figures()
    assert before is not None
    assert (before.rate, before.seconds_left) == (None, None)
    assert after is not None
    assert (after.done, after.rate, after.seconds_left) == (200, 40.0, 20.0)


def test_more_than_the_total_leaves_no_time(phases: Phases, clock: Seconds) -> None:
    """A total may be a little old."""
    with gathered(phases), phase("writing", 10) as writing:
        clock.now = 1.0
        writing.at(12)
        found = phases.figures()
    assert found is not None
    assert found.seconds_left == 0


def test_a_phase_may_look_for_itself(phases: Phases) -> None:
    """Until it knows something, its own figures hold. A failing look is not repeated."""
    answers: list[Amount | OSError | None] = [None, (7, 9), OSError("gone"), (8, 9)]

    def look() -> Amount | None:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with gathered(phases), phase("copying", 5, "bytes", look):
        found = [phases.figures() for _ in range(4)]
    assert [(each.done, each.total) for each in found if each is not None] == [(0, 5), (7, 9), (0, 5), (0, 5)]
    assert answers == [(8, 9)]


@pytest.mark.parametrize(
    ("total", "tasks", "shown"),
    [
        (None, Tasks(1, 4, 50), ("tasks", 1, 4)),
        (200, Tasks(1, 4, 50), ("rows", 50, 200)),
        (200, Tasks(1, 4, 0), ("tasks", 1, 4)),
        (200, Tasks(1, 4, 250), ("rows", 200, 200)),
        (200, None, ("rows", 0, 200)),
    ],
)
def test_spark_s_tasks_fill_in_for_a_job_that_waits(
    phases: Phases, clock: Seconds, total: int | None, tasks: Tasks | None, shown: tuple[str, int, int]
) -> None:
    """Their rows count where their number is known. Tasks have no rate, because they differ in length."""
    with gathered(phases), phase("writing", total):
        follow_tasks(lambda: tasks)
        clock.now = 2.0
        found = phases.figures()
    assert found is not None
    assert (found.unit, found.done, found.total) == shown
    assert found.unit == "rows" or found.rate is None


def test_own_figures_prevail(phases: Phases) -> None:
    with gathered(phases), phase("archiving", 10, "changes") as archiving:
        follow_tasks(lambda: Tasks(1, 4, 3))
        archiving.at(2)
        found = phases.figures()
    assert found is not None
    assert (found.unit, found.done) == ("changes", 2)


def test_a_spark_that_ends_takes_only_its_figures_away(phases: Phases) -> None:
    def ask() -> Tasks:
        raise ConnectionError("Spark has ended")

    with gathered(phases), phase("reading"):
        follow_tasks(ask)
        assert phases.figures() == Figures("reading", "rows", 0, None, 0.0)


def test_jobs_run_without_a_display() -> None:
    """As in a notebook."""
    with phase("reading", 5) as reading:
        reading.add(1)
        progressed(2, 5)
        follow_tasks(lambda: None)
    assert reading.figures().done == 1
