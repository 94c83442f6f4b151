"""A signal interrupts a command, or lets it finish first."""

from __future__ import annotations

import signal
import sqlite3

import pytest

from holdfast.pipeline.cli.signals import END_SIGNALS, EndedBySignal, EndSignals


@pytest.mark.parametrize("number", END_SIGNALS)
def test_the_first_signal_ends_the_running_work(number: signal.Signals) -> None:
    """With the status that shells expect; the earlier handlers are restored."""
    before = signal.getsignal(number)
    signals = EndSignals()
    with pytest.raises(EndedBySignal), signals.handled():
        signal.raise_signal(number)
    assert (signals.status, signals.name, signals.interrupted) == (128 + number, number.name, True)
    assert signal.getsignal(number) is before


def test_a_job_that_finishes_first_is_interrupted_by_the_second_signal() -> None:
    """The first signal is only noted."""
    signals = EndSignals()
    signals.finish_first()
    with signals.handled():
        assert not signals.received
        signal.raise_signal(signal.SIGTERM)
        assert (signals.received, signals.interrupted) == (True, False)
        with pytest.raises(EndedBySignal):
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
    with signals.handled():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signals.listen()
        with pytest.raises(EndedBySignal):
            signal.raise_signal(signal.SIGINT)


def test_a_statement_of_sqlite_is_interrupted() -> None:
    """The exception of the signal is raised in SQLite's progress handler, which ends the statement."""
    signals = EndSignals()
    connection = sqlite3.connect(":memory:")
    connection.set_progress_handler(lambda: signal.raise_signal(signal.SIGTERM), 1000)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with signals.handled(), pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute(endless)
    assert signals.interrupted
    connection.close()
