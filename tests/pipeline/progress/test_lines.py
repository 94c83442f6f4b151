"""Lines of progress: their words, their JSON, and when they come."""

from __future__ import annotations

import json

import pytest

from holdfast_pipeline.progress import BYTES, TASKS, Figures, Lines, Phases, gathered, json_line, line, phase


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (Figures("starting Spark", "rows", 0, None, 12.3), "starting Spark, for 12 s"),
        (Figures("writing", "rows", 0, 400_000, 3.0), "writing, 0 of 400,000 rows (0 %), for 3 s"),
        (
            Figures("writing", "rows", 120_000, 400_000, 10.0),
            "writing, 120,000 of 400,000 rows (30 %), 12,000 rows/s, 23 s left",
        ),
        (Figures("merging", "messages", 120, None, 4.0), "merging, 120 messages, 30 messages/s"),
        (Figures("reading", TASKS, 3, 8, 20.0), "reading, 3 of 8 tasks (38 %), for 20 s"),
        (
            Figures("copying the database", BYTES, 3 << 20, 9 << 20, 2.0),
            "copying the database, 3.0 MB of 9.0 MB (33 %), 1.5 MB/s, 4 s left",
        ),
    ],
)
def test_a_line_has_what_is_known(figures: Figures, said: str) -> None:
    assert line("export", figures) == f"export: {said}"


def test_json_has_null_for_what_is_unknown() -> None:
    known = json_line("nightly", Figures("writing", "rows", 120_000, 400_000, 10.0))
    assert json.loads(known)["progress"] == {
        "job": "nightly", "phase": "writing", "unit": "rows", "done": 120_000, "total": 400_000,
        "per_second": 12_000.0, "seconds": 10.0, "seconds_left": 23.3,
    }  # fmt: skip
    unknown = json.loads(json_line("nightly", Figures("reading", "rows", 0, None, 1.0)))["progress"]
    assert (unknown["total"], unknown["per_second"], unknown["seconds_left"]) == (None, None, None)


def test_a_line_comes_every_ten_seconds() -> None:
    """The first one too: a short command prints none. Between two phases there is nothing to say."""
    now, written = [0.0], list[str]()
    phases = Phases("sync", lambda: now[0])
    lines = Lines(phases, written.append, lambda job, figures: f"{job} {figures.name} {now[0]:.1f}")
    with gathered(phases):
        for half in range(1, 61):
            now[0] = half / 2
            if half == 41:
                with phase("joining"):
                    lines.show()
            elif half < 25 or half > 41:
                with phase("reading"):
                    lines.show()
            else:
                lines.show()
    assert written == ["sync reading 10.0\n", "sync joining 20.5\n"]
