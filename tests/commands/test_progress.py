"""The progress of a command whose standard error is a file or a pipe."""

from __future__ import annotations

from itertools import count

import pytest

from holdfast.commands import common as module
from holdfast.commands.common import progress


@pytest.mark.parametrize(
    ("total", "known_later", "in_bytes", "lines"),
    [
        (100_000, None, False, ["importing: 30,000 of 100,000 (30 %) after 12 s",
                                "importing: 60,000 of 100,000 (60 %) after 24 s"]),
        (None, None, False, ["importing: 30,000 after 12 s", "importing: 60,000 after 24 s"]),
        (None, 70_000, False, ["importing: 30,000 of 70,000 (42 %) after 12 s",
                               "importing: 60,000 of 70,000 (85 %) after 24 s"]),
        (0, None, True, ["importing: 0 MB after 12 s", "importing: 0 MB after 24 s"]),
    ],
)  # fmt: skip
def test_without_a_terminal_a_line_tells_the_progress_every_ten_seconds(
    total: int | None, known_later: int | None, in_bytes: bool, lines: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """On standard error, so that standard output keeps only facts."""
    seconds = count(0, 4)
    monkeypatch.setattr(module, "monotonic", lambda: next(seconds))
    with progress("importing", total, in_bytes) as report:
        for done in range(10_000, 80_000, 10_000):
            report(done, known_later)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == lines


def test_a_short_task_tells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 10) as report:
        for done in range(10):
            report(done)
    assert capsys.readouterr().err == ""
