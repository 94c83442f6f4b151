"""Work beside a job: Spark answers several queries at once, while each of them waits mostly for one processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """A function that runs in a thread of its own from now on.

    If the job fails, or a signal ends it, nobody waits for the function, and nobody gets its error. The function must
    not declare phases, because users see the phase of the job.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> T:
        """Wait until the function has ended. Return its result, or raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._error = error


@contextmanager
def entered(context: AbstractContextManager[T]) -> Iterator[Background[T]]:
    """Enter a context in the background, and leave it at the end of the block.

    If the block fails, nobody waits for a context that is being entered: it is left when it has been.
    """
    lock = Lock()
    inside, failed = False, False

    def enter() -> T:
        nonlocal inside
        value = context.__enter__()
        with lock:
            inside = not failed
        if not inside:
            context.__exit__(None, None, None)
        return value

    work = Background(enter)
    try:
        yield work
    except BaseException:
        with lock:
            failed = True
        if inside:
            with suppress(Exception):  # the failure of the block matters more
                context.__exit__(None, None, None)
        raise
    work.result()
    context.__exit__(None, None, None)
