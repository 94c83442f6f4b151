"""``POST /merge``: a staging area is merged part by part, and each part is reported."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.commands.interfaces import Access, Inaccessible
from holdfast.commands.stand_in import standing_in
from holdfast.config import default
from holdfast.core.messages import RetainedChange
from holdfast.retained.staging import FILE_INSERT, FILE_SCHEMA
from holdfast.retained.store.rows import row_of
from tests.pipeline.stores import message
from tests.storage.doubles import fresh_file

COUNT = 12_000

Merge = Callable[..., list[Any]]


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Access]:
    url = f"sqlite:///{fresh_file(tmp_path)}"
    config = default().override([], str(tmp_path), url, allow_anonymous=True, cwd=tmp_path)
    with standing_in(config) as found:
        yield found


@pytest.fixture
def merge(access: Access) -> Merge:
    """Make the call, with a body in JSON; return the lines of the answer."""

    def make(body: object, **arguments: str) -> list[Any]:
        pieces = access.pieces("/merge", {"job": "j", **arguments}, "POST", json.dumps(body).encode())
        return [json.loads(line) for line in b"".join(pieces).splitlines()]

    return make


def staged(path: Path, *topics: str) -> dict[str, Any]:
    """Stage messages; return the body of the call."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(FILE_SCHEMA)
        for topic in topics:
            one = message(topic)
            connection.execute(FILE_INSERT, row_of(RetainedChange(topic, 0, one.stored_at, one)))
    return {"files": [str(path)]}


def test_each_chunk_is_reported_with_the_counts_of_the_whole_job(tmp_path: Path, access: Access, merge: Merge) -> None:
    """Until the state is "done". The counts include rows that were rejected before the job."""
    lines = merge(staged(tmp_path / "x.db", *(f"t/{number}" for number in range(COUNT))), rejected="3")
    assert [line["state"] for line in lines] == ["merging"] * (len(lines) - 1) + ["done"]
    counts = [line["counts"]["imported"] for line in lines]
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1] == COUNT
    assert lines[-1]["counts"]["rejected"] == 3
    assert access.call("GET", "/info")["count"] == COUNT


def test_rejects_are_reported_with_their_topics(tmp_path: Path, merge: Merge) -> None:
    """Only the broker knows its limits."""
    lines = merge(staged(tmp_path / "x.db", "t" * 2601, "t"))
    rejects = [reject for line in lines for reject in line["rejects"]]
    assert rejects == [{"topic": "t" * 2601, "reason": "the topic has 2601 bytes, at most 2600 are retained"}]


@pytest.mark.parametrize(
    ("body", "arguments", "words"),
    [
        (None, {}, "the body names the staging area"),
        ({"files": "x"}, {}, "the body names the staging area"),
        ({"table": "x", "attempts": [True]}, {}, "the body names the staging area"),
        ({"table": "retained", "attempts": [1]}, {}, "is no name of a staging table"),
        ({"files": ["/nowhere.db"]}, {}, "there is no such staging file"),
        ({"files": []}, {"merge": "some"}, "merge is newer, replace or keep"),
        ({"files": []}, {"job": ""}, "job is the name of the job"),
        ({"files": []}, {"rejected": "-1"}, "rejected is a whole number"),
    ],
)
def test_an_invalid_call_is_refused(merge: Merge, body: object, arguments: dict[str, str], words: str) -> None:
    """The refusal says why, and nothing is changed."""
    with pytest.raises(Inaccessible, match=words):
        merge(body, **arguments)


def test_a_broken_file_is_reported_in_the_last_line(tmp_path: Path, merge: Merge, access: Access) -> None:
    """The rows merged before stay, and the job can continue."""
    named = staged(tmp_path / "x.db", *(f"t/{number:05}" for number in range(COUNT)))
    size = (tmp_path / "x.db").stat().st_size
    with (tmp_path / "x.db").open("r+b") as file:
        file.seek(size - size // 8)
        file.write(b"\xff" * (size // 8))
    lines = merge(named)
    assert [line["state"] for line in lines] == ["merging"] * (len(lines) - 1) + ["failed"]
    assert "cannot be read as staging files" in lines[-1]["message"]
    assert 0 < access.call("GET", "/info")["count"] < COUNT
    (tmp_path / "x.db").unlink()
    again = staged(tmp_path / "x.db", *(f"t/{number:05}" for number in range(COUNT)))
    assert merge(again)[-1]["counts"]["imported"] == COUNT
