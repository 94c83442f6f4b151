"""The file and the journal of the audit log."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from holdfast.watch.audit import FileSink, JournalSink


def test_lines_are_appended_to_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"old\n")
    path.unlink()
    sink = FileSink(path)
    sink.open()
    sink.write([b"1", b"2"])
    sink.write([b"3"])
    assert path.read_bytes() == b"1\n2\n3\n"
    assert path.stat().st_mode & 0o137 == 0
    sink.close()
    again = FileSink(path)
    again.open()
    again.write([b"4"])
    assert path.read_bytes().endswith(b"3\n4\n")
    again.close()


def test_a_renamed_or_removed_file_is_opened_again(tmp_path: Path) -> None:
    """As logrotate renames it, without a signal."""
    path = tmp_path / "audit.log"
    sink = FileSink(path)
    sink.open()
    sink.write([b"1"])
    path.rename(tmp_path / "audit.log.1")
    sink.write([b"2"])
    path.unlink()
    sink.write([b"3"])
    assert path.read_bytes() == b"3\n"
    assert (tmp_path / "audit.log.1").read_bytes() == b"1\n"
    sink.close()


def test_a_line_that_was_written_in_part_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "audit.log", os.write
    sink = FileSink(path)
    sink.open()
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with pytest.raises(OSError, match="only a part"):
        sink.write([b"first line"])
    monkeypatch.undo()
    sink.write([b"second line"])
    assert path.read_bytes() == b"fir\nsecond line\n"
    sink.close()


def test_the_journal_gets_an_entry_for_each_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(path))
        sink = JournalSink(path)
        sink.open()
        sink.write([b'{"event":"refused"}', b"{}"])
        assert journal.recv(1000) == b'PRIORITY=5\nSYSLOG_IDENTIFIER=holdfast-audit\nMESSAGE={"event":"refused"}\n'
        assert journal.recv(1000).endswith(b"MESSAGE={}\n")
    with pytest.raises(OSError, match=os.strerror(errno.ECONNREFUSED)):
        sink.write([b"{}"])
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:  # a restarted journal
        journal.bind(str(path))
        sink.write([b"{}"])
        assert journal.recv(1000)
        sink.close()


def test_without_a_journal_it_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        JournalSink(tmp_path / "none").open()
