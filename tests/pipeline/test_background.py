"""Work in the background has the result, or the error, of its function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread

import pytest

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.progress import Background, entered


def test_it_runs_beside_and_gives_the_result() -> None:
    """The function waits for what happens after its start."""
    later = Event()
    work = Background(lambda: later.wait(60))
    later.set()
    assert work.result()
    assert work.result()


def test_an_error_is_raised_where_the_result_is_wanted() -> None:
    def fail() -> None:
        raise PipelineError("no space")

    work = Background(fail)
    for _ in range(2):
        with pytest.raises(PipelineError, match="no space"):
            work.result()


def test_a_context_is_entered_beside_and_left_at_the_end() -> None:
    done = []

    @contextmanager
    def context() -> Iterator[str]:
        yield current_thread().name
        done.append("left")

    with entered(context()) as work:
        assert work.result() != current_thread().name
        assert done == []
    assert done == ["left"]


def test_the_error_of_a_context_that_nobody_asked_for_is_raised_at_the_end() -> None:
    @contextmanager
    def context() -> Iterator[None]:
        raise PipelineError("no history")
        yield

    with pytest.raises(PipelineError, match="no history"), entered(context()):
        pass


@pytest.mark.parametrize("is_late", [True, False])
def test_a_context_is_left_when_the_block_fails(is_late: bool) -> None:
    """Nobody waits for one that is being entered: it is left when it has been. The error is that of the block."""
    later, left = Event(), Event()

    @contextmanager
    def context() -> Iterator[None]:
        if is_late:
            later.wait(60)
        try:
            yield
        finally:
            left.set()
            raise PipelineError("no session")

    def fail() -> None:
        with entered(context()) as work:
            if not is_late:
                work.result()
            raise PipelineError("no space")

    with pytest.raises(PipelineError, match="no space"):
        fail()
    assert left.is_set() != is_late
    later.set()
    assert left.wait(60)
