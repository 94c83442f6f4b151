"""Large imports with and without a running broker: killed at any point, and read by subscribers meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.commands.stand_in import standing_in
from holdfast.config import default
from holdfast.retained.staging import StagingArea, staging_area_for
from holdfast.retained.store.rows import Row
from holdfast.retained.verdicts import Merge
from holdfast_pipeline.sink import Target, row_of_fields
from tests.paho import PahoClient
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]

#: The merge of a staged job. It prints the number of imported messages after each part.
DRIVER = """
import json, sys
from holdfast_pipeline.sink import Target
from holdfast.retained.verdicts import Merge
for said in Target(sys.argv[1], None).merge(sys.argv[2], Merge.NEWER, 0, json.loads(sys.argv[3])):
    print(json.dumps(said["counts"]), flush=True)
"""
COUNT = 6_000
NOW = 1_700_000_000_000


def rows(value: bytes, stored_at: int) -> list[Row]:
    """Return a message for each topic."""
    return [
        row_of_fields({"topic": f"t/{number:05}", "payload": value, "stored_at": stored_at}, NOW)
        for number in range(COUNT)
    ]


def staged(url: str, job: str, found: list[Row]) -> tuple[StagingArea, dict[str, Any]]:
    """Stage rows like two tasks. A third one does not count, because it was repeated."""
    stage = staging_area_for(url, job, None)
    stage.open()
    stage.put(1, found[::2])
    stage.put(2, found[1::2])
    stage.put(3, [row._replace(topic="doubled/" + row.topic) for row in found[:10]])
    return stage, stage.prepare_merge([1, 2])


def driver(url: str, job: str, named: dict[str, Any]) -> subprocess.Popen[str]:
    """Start to merge."""
    command = [sys.executable, "-c", DRIVER, url, job, json.dumps(named)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, int]:
    """Wait for the end; return the last counts."""
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    counts: dict[str, int] = json.loads(told.splitlines()[-1])
    return counts


@pytest.mark.crash
@pytest.mark.parametrize("running", [True, False], ids=["next to a broker", "without a broker"])
def test_a_job_killed_during_its_merge_has_the_same_result_when_repeated(
    broker_in: Brokers, storage: tuple[str, ...], running: bool
) -> None:
    """Each message is imported once, and the counts are those of one run, also if rows are staged again."""
    broker = broker_in(*storage).start()
    folder = broker.directory / "data"
    url = storage[1] if storage else f"sqlite:///{folder / 'holdfast.db'}"
    if not running:
        broker.stop()
    found = rows(b"x", NOW)
    _, named = staged(url, "job", found)
    killed = driver(url, "job", named)
    assert killed.stdout is not None
    assert 0 < json.loads(killed.stdout.readline())["imported"] < COUNT
    killed.kill()
    killed.communicate(timeout=60)
    stage, named = staged(url, "job", found)
    counts = finish(driver(url, "job", named))
    assert {name: count for name, count in counts.items() if count} == {"imported": COUNT}
    stage.drop()
    if running:
        broker.stop()
    with standing_in(default().override([], str(folder), url, allow_anonymous=True, cwd=Path.cwd())) as access:
        assert access.call("GET", "/info")["count"] == COUNT
        assert access.call("GET", "/messages", {"topic": "doubled/#"})["data"] == []


def test_subscribers_get_every_topic_once_while_all_of_them_are_imported(broker_in: Brokers) -> None:
    """A replay during the import has the older or the newer value of each topic, once."""
    broker = broker_in().start()
    url = f"sqlite:///{broker.directory / 'data' / 'holdfast.db'}"
    stage, named = staged(url, "old", rows(b"old", NOW))
    list(Target(url, None).merge("old", Merge.NEWER, 0, named))
    stage.drop()
    stage, named = staged(url, "new", rows(b"new", NOW + 1))
    process = driver(url, "new", named)
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline())["imported"]]
    meanwhile = PahoClient(broker.port, 5)
    meanwhile.subscribe("t/#")
    messages = [meanwhile.next_message() for _ in range(COUNT)]
    seen.append(finish(process)["imported"])
    assert seen[0] < seen[1] == COUNT
    assert {message.payload for message in messages} <= {b"old", b"new"}
    assert len({message.topic for message in messages}) == COUNT
    assert meanwhile.quiet()
    late = PahoClient(broker.port, 5)
    late.subscribe("t/#")
    assert {late.next_message().payload for _ in range(COUNT)} == {b"new"}
    stage.drop()
