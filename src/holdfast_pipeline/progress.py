"""The phases of a job: their progress in figures, in words, as a bar on a terminal, as lines; and work beside them.

    with phase("merging", total=20_000) as merging:
        for part in parts:
            ...
            merging.add(len(part))

A phase inside another one is shown in its place. Without a display, phases cost nothing and show nothing. Spark works
on its own while a job waits: then its tasks tell how much of the phase is done (:func:`follow_tasks`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Generic, Protocol, TextIO, TypeVar

from attrs import define, evolve, field, frozen
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from holdfast_pipeline.formatting import number, share, size, span

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


# The figures of a phase in words, and as JSON. Pure.

#: The unit that is written with a larger unit of its own.
BYTES = "bytes"


def amount_text(figures: Figures) -> str:
    """Return the amount: "120,000 of 400,000 rows (30 %)". Empty if it is unknown."""
    if figures.total is None:
        return _counted(figures.done, figures.unit) if figures.done else ""
    done = size(figures.done) if figures.unit == BYTES else number(figures.done)
    return f"{done} of {_counted(figures.total, figures.unit)} ({share(figures.done, figures.total)})"


def pace_text(figures: Figures) -> str:
    """Return the rate and the time left: "11,000 rows/s, 25 s left". Empty if nothing is known."""
    if figures.rate is None:
        return ""
    rate = size(figures.rate) if figures.unit == BYTES else f"{figures.rate:,.3g}" if figures.rate < 100 else None
    text = f"{rate or number(figures.rate)}{'' if figures.unit == BYTES else f' {figures.unit}'}/s"
    left = figures.seconds_left
    return text if left is None else f"{text}, {span(round(left))} left"


def line(job: str, figures: Figures) -> str:
    """Return one line: "asof: writing, 120,000 of 400,000 rows (30 %), 11,000 rows/s, 25 s left"."""
    pace = pace_text(figures) or f"for {span(round(figures.seconds))}"
    known = [figures.name, amount_text(figures), pace]
    return f"{job}: {', '.join(each for each in known if each)}"


def json_line(job: str, figures: Figures) -> str:
    """Return the same for programs. An unknown figure is null."""
    rate, left = figures.rate, figures.seconds_left
    content = {
        "job": job, "phase": figures.name, "unit": figures.unit, "done": figures.done, "total": figures.total,
        "per_second": None if rate is None else round(rate, 3), "seconds": round(figures.seconds, 1),
        "seconds_left": None if left is None else round(left, 1),
    }  # fmt: skip
    return json.dumps({"progress": content})


def _counted(count: int, unit: str) -> str:
    return size(count) if unit == BYTES else f"{number(count)} {unit}"


# Progress as a bar on a terminal.


class Bar:
    """A bar for the present phase, in the last line of a terminal. It goes away in the end.

    What is written to ``sys.stderr`` meanwhile appears above it.
    """

    def __init__(self, phases: Phases, terminal: TextIO) -> None:
        self._phases = phases
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}", markup=False),
            console=Console(file=terminal, force_terminal=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        self._task = self._progress.add_task("", total=None, figures="")
        self._progress.start()

    def show(self) -> None:
        """Draw the bar anew."""
        now = self._phases.figures()
        if now is None:
            return
        texts = [text for text in (amount_text(now), pace_text(now)) if text]
        self._progress.update(
            self._task, description=f"{self._phases.job}: {now.name}", total=now.total, completed=now.done,
            figures=", ".join(texts), refresh=True,
        )  # fmt: skip

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()


# Progress as lines, for logs and programs.

#: Seconds between two lines, and before the first one: a short command prints none.
PERIOD = 10.0


class Lines:
    """Writes a line about the present phase every ten seconds."""

    def __init__(self, phases: Phases, write: Callable[[str], object], text: Callable[[str, Figures], str]) -> None:
        self._phases = phases
        self._write = write
        self._text = text
        self._next = phases.clock() + PERIOD

    def show(self) -> None:
        """Write a line if it is time for one."""
        if self._phases.clock() < self._next:
            return
        figures = self._phases.figures()
        if figures is None:
            return
        self._write(self._text(self._phases.job, figures) + "\n")
        self._next = self._phases.clock() + PERIOD

    def close(self) -> None:
        """Write no more lines."""


# The display of a command's progress: chosen for the console, and kept up to date by a thread.
#
# It writes to a copy of the descriptor of standard error, because that one is redirected while Spark starts.

#: Seconds between two looks at the phases.
_LOOK = 0.5


class Display(Protocol):
    """Shows the present phase."""

    def show(self) -> None:
        """Show how far it is."""

    def close(self) -> None:
        """Leave the console as it was."""


@contextmanager
def shown(job: str, *, as_json: bool, bar: bool, descriptor: int = 2) -> Iterator[None]:
    """Show the phases that the block declares, on a descriptor of the console.

    With ``as_json``, as lines of JSON; with ``bar``, as a bar if it is a terminal; else as lines for people.
    """
    phases = Phases(job)
    try:
        console = os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="backslashreplace")
    except OSError:  # closed: nobody looks
        with gathered(phases):
            yield
        return
    try:
        with gathered(phases), _kept_up_to_date(_maker(phases, console, as_json, bar)):
            yield
    finally:
        with suppress(OSError):  # gone meanwhile
            console.close()


def _maker(phases: Phases, console: TextIO, as_json: bool, bar: bool) -> Callable[[], Display]:
    if bar and not as_json and is_terminal(console, os.environ):

        def drawn() -> Display:

            return Bar(phases, console)

        return drawn

    def write(text: str) -> None:
        console.write(text)
        console.flush()

    lines = Lines(phases, write, json_line if as_json else line)
    return lambda: lines


def is_terminal(console: TextIO, environment: Mapping[str, str]) -> bool:
    """Tell whether a bar can be drawn there."""
    return console.isatty() and environment.get("TERM", "") not in ("", "dumb")


@contextmanager
def _kept_up_to_date(make: Callable[[], Display]) -> Iterator[None]:
    ended = Event()

    def run() -> None:
        display: Display | None = None
        with suppress(OSError):  # the console is gone: nobody looks
            try:
                while not ended.wait(_LOOK):
                    display = display or make()
                    display.show()
            finally:
                if display is not None:
                    display.close()

    thread = Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# Work beside a job: Spark answers several queries at once, while each of them waits mostly for one processor.

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
