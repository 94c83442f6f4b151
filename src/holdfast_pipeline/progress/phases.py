"""Phases of a job, each with its progress.

    with phase("merging", total=20_000) as merging:
        for part in parts:
            ...
            merging.add(len(part))

A phase inside another one is shown in its place. Without a display, phases cost nothing and show nothing. Spark works
on its own while a job waits: then its tasks tell how much of the phase is done (:func:`follow_tasks`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, evolve, field, frozen

#: What a phase has done, and of how much. None: unknown.
Amount = tuple[int, int | None]
#: The unit of a phase whose figures are those of Spark. Tasks differ in length, so they have no rate.
TASKS = "tasks"


@frozen
class Tasks:
    """Spark's work of the moment: its tasks, those that are done, and the rows that they have read."""

    done: int
    total: int
    rows: int


@frozen
class Figures:
    """A phase at a moment: ``done`` of ``total`` (None: unknown) in so many ``seconds``."""

    name: str
    unit: str
    done: int
    total: int | None
    seconds: float

    @property
    def rate(self) -> float | None:
        """Units in a second; None before the first one is done."""
        known = self.done and self.seconds > 0 and self.unit != TASKS
        return self.done / self.seconds if known else None

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest takes at this rate; None if the rate or the total is unknown."""
        if self.rate is None or self.total is None:
            return None
        return max(0, self.total - self.done) / self.rate


@define(eq=False)
class Phase:
    """A part of a job; ``unit`` is a plural. Other threads may read it."""

    name: str
    unit: str
    total: int | None
    _look: Callable[[], Amount | None] | None
    _clock: Callable[[], float]
    _begun: float = field(init=False)
    _done: int = 0

    def __attrs_post_init__(self) -> None:
        self._begun = self._clock()

    def add(self, count: int) -> None:
        """Note that so many more units are done."""
        self._done += count

    def at(self, done: int, total: int | None = None) -> None:
        """Note that so many units are done in all, and perhaps of how many."""
        self._done = done
        if total is not None:
            self.total = total

    def figures(self) -> Figures:
        """Return the present figures."""
        found = None
        if self._look is not None:
            try:
                found = self._look()
            except Exception:  # noqa: BLE001 - figures are a courtesy: Spark or the database may end at any moment
                self._look = None
        done, total = found if found is not None else (self._done, self.total)
        return Figures(self.name, self.unit, done, total, self._clock() - self._begun)

    def figures_with(self, tasks: Tasks | None) -> Figures:
        """Return the present figures: those of Spark's ``tasks`` if the job itself has none."""
        own = self.figures()
        if own.done or tasks is None:
            return own
        if own.total is not None and tasks.rows:
            return evolve(own, done=min(tasks.rows, own.total))
        return evolve(own, unit=TASKS, done=tasks.done, total=tasks.total)


class Phases:
    """The phases of a command, the innermost last, and the ``job`` that they belong to."""

    def __init__(self, job: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.job = job
        self.clock = clock
        #: Asks Spark, where it runs.
        self.tasks: Callable[[], Tasks | None] = lambda: None
        self._open: list[Phase] = []

    def figures(self) -> Figures | None:
        """Return the figures of the innermost phase; None outside of all phases."""
        phases = tuple(self._open)
        if not phases:
            return None
        try:
            tasks = self.tasks()
        except Exception:  # noqa: BLE001 - as above: Spark may end at any moment
            tasks = None
        return phases[-1].figures_with(tasks)

    def progressed(self, done: int, total: int) -> None:
        """Note how much of the innermost phase is done."""
        if self._open:
            self._open[-1].at(done, total)

    def begin(self, phase: Phase) -> None:
        """Open a phase inside the present one."""
        self._open.append(phase)

    def end(self, phase: Phase) -> None:
        """Close a phase."""
        self._open.remove(phase)


#: The phases of the running command. A process runs one command at a time.
_running: list[Phases] = []


@contextmanager
def gathered(phases: Phases) -> Iterator[None]:
    """Have the phases that jobs declare inside belong to ``phases``."""
    _running.append(phases)
    try:
        yield
    finally:
        _running.remove(phases)


@contextmanager
def phase(
    name: str, total: int | None = None, unit: str = "rows", look: Callable[[], Amount | None] | None = None
) -> Iterator[Phase]:
    """Declare a phase; ``total`` is the number of its units. ``look`` is asked when figures are shown.

    It runs in another thread, at most once a second, and returns None as long as it knows nothing.
    """
    owner = _running[-1] if _running else None
    declared = Phase(name, unit, total, look, owner.clock if owner is not None else time.monotonic)
    if owner is None:
        yield declared
        return
    owner.begin(declared)
    try:
        yield declared
    finally:
        owner.end(declared)


def progressed(done: int, total: int) -> None:
    """Note in the innermost phase that ``done`` of ``total`` units are done."""
    if _running:
        _running[-1].progressed(done, total)


def follow_tasks(tasks: Callable[[], Tasks | None]) -> None:
    """Have the phases of the running command ask Spark in this way."""
    if _running:
        _running[-1].tasks = tasks
