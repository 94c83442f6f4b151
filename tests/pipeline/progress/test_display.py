"""The display on a terminal, in a file, and where there is none."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from holdfast_pipeline import progress as display
from holdfast_pipeline import progress as lines
from holdfast_pipeline.progress import Amount, phase, shown

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look, and write lines, as often as possible."""
    monkeypatch.setattr(display, "_LOOK", 0.001)
    monkeypatch.setattr(lines, "PERIOD", 0.0)
    monkeypatch.setenv("TERM", "xterm")


@contextmanager
def terminal() -> Iterator[tuple[int, Callable[[], str]]]:
    """Give the descriptor of a terminal, and a function that returns what was written, once it is closed."""
    outer, inner = pty.openpty()
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(outer, 65536):
                pieces.append(piece)
        except OSError:  # the other side is closed
            return

    thread = threading.Thread(target=read)
    thread.start()

    def written() -> str:
        os.close(inner)
        thread.join(60)
        return b"".join(pieces).decode()

    try:
        yield inner, written
    finally:
        thread.join(60)
        os.close(outer)


def shown_often(seen: threading.Event) -> Callable[[], Amount]:
    """Return the look of a phase, which notes that it was shown three times."""
    count = 0

    def look() -> Amount:
        nonlocal count
        count += 1
        if count == 3:
            seen.set()
        return 30, 120

    return look


def bar(descriptor: int) -> AbstractContextManager[None]:
    """Show the progress of an export on a terminal."""
    return shown("export", as_json=False, bar=True, descriptor=descriptor)


def test_a_terminal_has_a_bar_that_goes_away() -> None:
    """The cursor is visible again, and what the command writes meanwhile has a line of its own."""
    seen = threading.Event()
    with terminal() as (descriptor, written):
        with bar(descriptor), phase("writing", 120, look=shown_often(seen)):
            assert seen.wait(60)
            print("a remark [with] brackets", file=sys.stderr)
        found = written()
    plain = _SEQUENCE.sub("", found)
    assert "export: writing ━" in plain
    assert "30 of 120 rows (25 %)" in plain
    assert "\ra remark [with] brackets\r\n" in plain
    assert_in_order(found)


def assert_in_order(found: str) -> None:
    """Assert that the bar is removed, and that the cursor is visible."""
    assert found.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


@pytest.mark.parametrize(
    ("as_json", "wants_bar", "term"), [(False, False, "xterm"), (True, True, "xterm"), (False, True, "dumb")]
)
def test_lines_replace_a_bar(as_json: bool, wants_bar: bool, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bar is not wanted, with --json, and on a terminal that cannot draw."""
    monkeypatch.setenv("TERM", term)
    seen = threading.Event()
    with terminal() as (descriptor, written):
        with (
            shown("export", as_json=as_json, bar=wants_bar, descriptor=descriptor),
            phase("writing", 120, look=shown_often(seen)),
        ):
            assert seen.wait(60)
        found = written()
    first = found.splitlines()[0]
    assert "\x1b" not in found
    if as_json:
        assert json.loads(first)["progress"]["total"] == 120
    else:
        assert first.startswith("export: writing, 30 of 120 rows (25 %), ")


def test_an_error_of_the_job_leaves_the_display_in_order() -> None:
    """It reaches the command, after the bar has gone."""
    seen = threading.Event()

    def interrupted(descriptor: int) -> None:
        with bar(descriptor), phase("writing", 2, look=shown_often(seen)):
            assert seen.wait(60)
            raise KeyboardInterrupt

    with terminal() as (descriptor, written):
        with pytest.raises(KeyboardInterrupt):
            interrupted(descriptor)
        found = written()
    assert_in_order(found)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_reader_that_goes_away_stops_the_display_only() -> None:
    """As after ``holdfast-pipeline ... 2> >(head)``."""
    reading, writing = os.pipe()
    os.close(reading)
    with shown("export", as_json=False, bar=True, descriptor=writing), phase("writing"):
        for thread in threading.enumerate():
            if thread.name == "progress":
                thread.join(60)
    os.close(writing)


def test_a_closed_standard_error_is_no_error(tmp_path: Path) -> None:
    closed = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    os.close(closed)
    with shown("export", as_json=False, bar=True, descriptor=closed), phase("writing") as writing:
        writing.add(1)
