"""The display of a command's progress: chosen for the console, and kept up to date by a thread.

It writes to a copy of the descriptor of standard error, because that one is redirected while Spark starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Protocol, TextIO

from holdfast_pipeline.progress.lines import Lines
from holdfast_pipeline.progress.phases import Phases, gathered
from holdfast_pipeline.progress.texts import json_line, line

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
            from holdfast_pipeline.progress.bar import Bar  # rich takes a while, and short commands end before

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
