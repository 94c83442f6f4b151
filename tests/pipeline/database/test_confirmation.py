"""A lake tells the database its last entry, with and without a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.changes.periods import read_state
from holdfast.config import Config, default
from holdfast.storage.location import DirectoryLock
from holdfast_pipeline.database import Source, confirm_in_lake
from holdfast_pipeline.errors import PipelineError
from tests.pipeline.stores import Filled, message


def configured(filled: Filled, folder: Path) -> Config:
    """Return the configuration of a broker of the database."""
    return default().override([], str(folder), filled.url, allow_anonymous=True, cwd=folder)


def archived_seq(filled: Filled) -> int | None:
    """Return the entry up to which the database knows the lake."""
    with Source(filled.url).transaction() as transaction:
        return read_state(transaction.connection.cursor()).archived_seq


def test_a_confirmation_is_recorded_and_never_decreases(recorded: Filled, tmp_path: Path) -> None:
    """It begins with 0, which already keeps all entries; entries beyond the history are refused."""
    recorded.put(message("a"), message("b"))
    config = configured(recorded, tmp_path)
    assert archived_seq(recorded) is None
    for seq, then in ((0, 0), (3, 3), (2, 3)):
        confirm_in_lake(config, seq)
        assert archived_seq(recorded) == then
    with pytest.raises(PipelineError, match="the history ends at"):
        confirm_in_lake(config, 4)
    assert archived_seq(recorded) == 3


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a data directory, as a broker does."""
    lock = DirectoryLock(folder)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_the_file_of_a_broker_that_does_not_answer_is_not_written(
    recorded: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker owns the file while it holds the lock."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    recorded.put(message("a"))
    with locked(tmp_path), pytest.raises(PipelineError, match=r"could not be confirmed: .*no broker answers at"):
        confirm_in_lake(configured(recorded, tmp_path), 1)
    assert archived_seq(recorded) is None
