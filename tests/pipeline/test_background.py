"""Work in the background has the result, or the error, of its function."""

from __future__ import annotations

from threading import Event

import pytest

from holdfast.pipeline.background import Background
from holdfast.pipeline.errors import PipelineError


def test_it_runs_beside_and_gives_the_result() -> None:
    """The function waits for what happens after its start."""
    later = Event()
    work = Background(lambda: later.wait(30))
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
