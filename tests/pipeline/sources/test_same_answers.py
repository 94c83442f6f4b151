"""``holdfast retainer import`` and ``holdfast-pipeline import`` have the same result for the same lines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.commands.importing import Import
from holdfast.commands.stand_in import standing_in
from holdfast.config import default
from holdfast.retained.records import line_of
from holdfast.retained.verdicts import Merge
from holdfast.wire.properties import Properties
from holdfast_pipeline.choices import REJECTS
from holdfast_pipeline.jobs.imports import import_messages
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sink import Target
from tests.pipeline.sink.test_sink import contents
from tests.pipeline.stores import NOW, Filled, database, message

FULL = {"qos": 2, "client_id": "c", "username": "u", "expires_at": 2**42}
#: The retained messages before the import: newer ones and older ones than the lines, and a cleared topic.
BEFORE = [message("newer", b"here"), message("older", b"here"), message("same", b"x"), message("gone", b"here")]
LINES = [
    line_of(message("new/grün", b"\x00\xff", properties=Properties(content_type="t"), **FULL)),
    line_of(message("newer", b"there", stored_at=NOW - 10)),
    line_of(message("older", b"there", stored_at=NOW + 10)),
    line_of(message("same", b"x")),
    line_of(message("gone", b"there", stored_at=NOW + 5)),
    line_of(message("expired", b"x", stored_at=5, expires_at=10)),
    line_of(message("younger", b"first", stored_at=NOW - 2)),
    line_of(message("equal", b"x", stored_at=NOW, revision=7)),
    b'{"topic": "bare", "payload": "eA==", "stored_at": %d}\n' % NOW,
]
BAD = [
    b"no JSON\n", b"[]\n", b'{"topic": "a"}\n', b'{"topic": "a", "payload": ""}\n', b'{"topic": "a", "payload": "?"}\n',
    b'{"topic": "", "payload": "eA=="}\n', b'{"topic": "a/#", "payload": "eA=="}\n',
    b'{"topic": "$SYS/a", "payload": "eA=="}\n', b'{"topic": "a", "payload": "eA==", "qos": 3}\n',
    b'{"topic": "a", "payload": "eA==", "stored_at": -1}\n', b'{"topic": "a", "payload": "eA==", "unknown": 1}\n',
    b'{"topic": "a", "payload": "eA==", "stored_at": 4102444800000}\n',
    b'{"topic": "a", "payload": "eA==", "properties": {"response_topic": "a/#"}}\n',
    b'{"topic": "a", "payload": "eA==", "client_id": "\\u0000"}\n', b'{"topic": "\\ud800", "payload": "eA=="}\n',
]  # fmt: skip


def prepare(target: Filled) -> None:
    """Retain the messages that exist before the import."""
    target.put(*BEFORE)
    target.put(message("gone", b""), at=NOW + 10)


@pytest.mark.spark
@pytest.mark.parametrize("merge", list(Merge))
def test_the_broker_s_command_and_the_pipeline_agree(
    spark: SparkSession, filled: Filled, tmp_path: Path, merge: Merge
) -> None:
    """On every count, on the rejected lines, and on the retained messages afterwards."""
    source, told = tmp_path / "in.ndjson", io.StringIO()
    lines = LINES + BAD
    source.write_bytes(b"".join(lines))
    (tmp_path / "other").mkdir()
    with database("sqlite", tmp_path / "other") as other:
        prepare(filled)
        prepare(other)
        config = default().override([], str(tmp_path / "other"), other.url, allow_anonymous=True, cwd=tmp_path)
        with standing_in(config) as access, source.open("rb") as file:
            command = Import(access, other.url, merge.value, told)
            command.run(file, None)
        done = import_messages(
            spark, str(source), "ndjson", Target(filled.url, None), merge, rejects=str(tmp_path / "rejects")
        )
        assert contents(spark, filled) == contents(spark, other)
    counts = {name: getattr(done, name) for name in command.counts}
    assert counts == dict(command.counts)
    assert done.rejected == command.rejected == len(BAD)
    rejected = [json.loads(line)["line"] for line in told.getvalue().splitlines()]
    places = [sum(map(len, lines[: number - 1])) for number in rejected]
    found = [json.loads(line)["source"] for line in Folder(str(tmp_path / "rejects")).read(REJECTS).splitlines()]
    assert found == [f"{source}, byte {place}" for place in places]
