"""A signal interrupts a command, or lets it finish first."""

from __future__ import annotations

import signal
import sqlite3
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast_pipeline.cli.running import END_SIGNALS, EndedBySignal, EndSignals


@pytest.mark.parametrize("number", END_SIGNALS)
def test_the_first_signal_ends_the_running_work(number: signal.Signals) -> None:
    """With the status that shells expect; the earlier handlers are restored."""
    before = signal.getsignal(number)
    signals = EndSignals()
    with _ended(signals):
        signal.raise_signal(number)
    assert (signals.status, signals.name, signals.interrupted) == (128 + number, number.name, True)
    assert signal.getsignal(number) is before


def test_a_job_that_finishes_first_is_interrupted_by_the_second_signal() -> None:
    """The first signal is only noted."""
    signals = EndSignals()
    signals.finish_first()
    with _ended(signals):
        assert not signals.received
        signal.raise_signal(signal.SIGTERM)
        assert (signals.received, signals.interrupted) == (True, False)
        signal.raise_signal(signal.SIGINT)
    assert (signals.status, signals.interrupted) == (143, True)


def test_an_ignored_signal_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = EndSignals()
        with signals.handled():
            signal.raise_signal(signal.SIGHUP)
        assert not signals.received
    finally:
        signal.signal(signal.SIGHUP, before)


def test_listening_again_replaces_the_handler_of_another_library() -> None:
    """Spark's session sets a handler for SIGINT."""
    signals = EndSignals()
    with _ended(signals):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signals.listen()
        signal.raise_signal(signal.SIGINT)


def test_an_exception_that_python_ignores_is_raised_again() -> None:
    """In a weak reference's callback, where it is lost. Nothing is printed of that."""
    signals = EndSignals()
    before = sys.unraisablehook
    with _ended(signals):
        _lose_an_exception(lambda: signal.raise_signal(signal.SIGTERM))
        signal.pause()
    assert (signals.status, sys.unraisablehook) == (143, before)


@pytest.mark.parametrize("end", [lambda: None, sys.exit])
def test_a_command_that_ends_after_its_signal_is_interrupted(end: Callable[[], None]) -> None:
    """Also when the exception was lost, and the command ended before it was raised again."""
    signals = EndSignals()
    with _ended(signals):
        _lose_an_exception(lambda: signal.raise_signal(signal.SIGTERM))
        end()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_other_exceptions_that_python_ignores_are_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are errors."""
    reported: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: reported.append(str(ignored.exc_value)))
    signals = EndSignals()
    with signals.handled():
        _lose_an_exception(lambda: int("x"))
    assert len(reported) == 1
    assert "invalid literal" in reported[0]
    assert not signals.received


def test_a_statement_of_sqlite_is_interrupted() -> None:
    """The exception of the signal is raised in SQLite's progress handler, which ends the statement."""
    signals = EndSignals()
    connection = sqlite3.connect(":memory:")
    connection.set_progress_handler(lambda: signal.raise_signal(signal.SIGTERM), 1000)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with _ended(signals), pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute(endless)
    assert signals.interrupted
    connection.close()


@contextmanager
def _ended(signals: EndSignals) -> Iterator[None]:
    with pytest.raises(EndedBySignal), signals.handled():
        yield


def _lose_an_exception(callback: Callable[[], object]) -> None:
    """Call it where Python ignores its exception."""

    class Gone:
        """Something that nobody keeps."""

    gone = Gone()
    reference = weakref.ref(gone, lambda _: callback())
    del gone
    assert reference() is None
