"""Signals end a command where it is, or let it come to an end."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator

import pytest

from holdfast.pipeline.spark.signals import Ended, Ending

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Have no signal ignored, as under nohup."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_ends_what_runs(number: signal.Signals) -> None:
    """With the status that shells expect; the handlers before are put back."""
    before = signal.getsignal(number)
    ending = Ending()
    with pytest.raises(Ended), ending.heard():
        signal.raise_signal(number)
    assert (ending.status, ending.name, ending.forced) == (128 + number, number.name, True)
    assert signal.getsignal(number) is before


def test_a_patient_job_is_only_told_and_the_second_signal_ends_it() -> None:
    """It sees that it was asked."""
    ending = Ending()
    ending.patient()
    with ending.heard():
        assert not ending.asked
        signal.raise_signal(signal.SIGTERM)
        assert (ending.asked, ending.forced) == (True, False)
        with pytest.raises(Ended):
            signal.raise_signal(signal.SIGINT)
    assert (ending.status, ending.forced) == (143, True)


def test_an_ignored_signal_stays_ignored() -> None:
    """As nohup wants it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ending = Ending()
        with ending.heard():
            signal.raise_signal(signal.SIGHUP)
        assert not ending.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_listening_again_takes_back_what_another_library_has_taken() -> None:
    """Spark's session takes SIGINT for itself."""
    ending = Ending()
    with ending.heard():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ending.listen()
        with pytest.raises(Ended):
            signal.raise_signal(signal.SIGINT)


def test_a_statement_of_sqlite_is_interrupted() -> None:
    """What a signal raises in the progress handler ends the statement, whatever the error says."""
    ending = Ending()
    connection = sqlite3.connect(":memory:")
    connection.set_progress_handler(lambda: signal.raise_signal(signal.SIGTERM), 1000)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with ending.heard(), pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute(endless)
    assert ending.forced
    connection.close()
