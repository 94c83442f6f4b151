"""The files of the log, renamed while they are written to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.logger import Logger, globalLogPublisher, textFileLogObserver
from twisted.python.logfile import LogFile

from holdfast.watch.log_output import reopen_log_files

log = Logger()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A log file, opened as twistd opens it."""
    path = tmp_path / "logs" / "broker.log"
    path.parent.mkdir()
    opened = LogFile.fromFullPath(str(path))
    observer = textFileLogObserver(opened)
    globalLogPublisher.addObserver(observer)
    yield path
    globalLogPublisher.removeObserver(observer)
    opened.close()


def test_a_renamed_log_file_is_made_again_and_gets_the_later_lines(file: Path) -> None:
    log.info("before")
    old = file.rename(file.with_suffix(".1"))
    reopened = reopen_log_files()
    log.info("after")
    assert (reopened.paths, reopened.failures) == ((str(file),), ())
    assert "before" in old.read_text()
    assert "after" not in old.read_text()
    assert "after" in file.read_text()


def test_a_log_file_that_is_still_there_is_continued(file: Path) -> None:
    log.info("before")
    reopen_log_files()
    log.info("after")
    assert [line.rsplit(maxsplit=1)[1] for line in file.read_text().splitlines()] == ["before", "after"]


def test_a_log_file_that_cannot_be_opened_again_gets_the_later_lines_still(file: Path, tmp_path: Path) -> None:
    """Its folder is gone, as after a wrong rotation: the lines go to the file of before."""
    with file.open() as reader:
        shutil.rmtree(file.parent)
        reopened = reopen_log_files()
        log.info("after")
        assert "after" in reader.read()
    assert reopened.paths == ()
    (failure,) = reopened.failures
    assert str(file) in failure
    assert "No such file" in failure


def test_without_a_log_file_there_is_nothing_to_reopen() -> None:
    assert reopen_log_files().paths == ()
