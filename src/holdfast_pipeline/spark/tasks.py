"""The tasks that a session runs at the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql.utils import is_remote

from holdfast_pipeline.progress.phases import Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tasks_of(session: SparkSession) -> Callable[[], Tasks | None]:
    """Return a function that asks a session for its tasks; None if it runs none. It may be called in any thread."""
    if is_remote():
        watched = _Watched()
        session.registerProgressHandler(watched)  # type: ignore[arg-type]  # a function will do
        return lambda: watched.tasks
    context: Any = session.sparkContext

    def ask() -> Tasks | None:
        stages = context._jsc.sc().statusStore().activeStages()
        found = [stages.apply(place) for place in range(stages.size())]
        if not found:
            return None
        return Tasks(
            sum(each.numCompleteTasks() for each in found),
            sum(each.numTasks() for each in found),
            sum(each.inputRecords() for each in found),
        )

    return ask


class _Watched:
    """Takes what a Spark Connect server tells while a query runs. It does not tell of rows."""

    def __init__(self) -> None:
        self.tasks: Tasks | None = None

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running = [] if done else [each for each in stages or () if not each.done]
        self.tasks = (
            Tasks(sum(each.num_completed_tasks for each in running), sum(each.num_tasks for each in running), 0)
            if running
            else None
        )
