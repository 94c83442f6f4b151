"""The samples: the same for a seed, complete in the database, and ``check`` finds exactly the planted faults."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve, frozen
from click.testing import CliRunner
from pyspark.sql import SparkSession

from holdfast.storage.api import time_of
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.checks.finding import Finding
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.decoding.sparkplug import read
from holdfast_pipeline.jobs.check import check
from holdfast_pipeline.sample.home import home
from holdfast_pipeline.sample.plant import plant
from holdfast_pipeline.sample.recording import DATABASE, FAULTS, Fault, Recording, write
from tests.pipeline.stores import NOW

MAKERS: dict[str, Callable[[int, int], Recording]] = {"home": home, "plant": plant}
#: The kinds that every sample has.
_KINDS = {
    "retained command", "missing topics", "misspelled topic", "wrong clock", "malformed payloads", "stale device",
    "unusual values", "chatty topic", "lost connection", "several publishers", "orphans",
    "stuck value", "flapping",
}  # fmt: skip


@frozen
class Judged:
    """A sample's faults, and the findings of ``check``."""

    faults: tuple[Fault, ...]
    findings: tuple[Finding, ...]


def is_about(finding: Finding, fault: Fault) -> bool:
    """Tell whether a finding is about the topic or device of a fault."""
    return finding.subject == fault.place or any(f"{topic}/".startswith(f"{fault.place}/") for topic in finding.topics)


@pytest.fixture(
    scope="module",
    params=[
        ("home", 1),
        ("home", 2),
        ("plant", 1),
        *(pytest.param((name, seed), marks=pytest.mark.nightly) for name in MAKERS for seed in range(3, 8)),
    ],
    ids=str,
)
def judged(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """One sample, written and judged without rules, at the time when it ends."""
    name, seed = request.param
    folder = tmp_path_factory.mktemp(name)
    written = write(MAKERS[name](seed, NOW), folder)
    with snapshot_of(f"sqlite:///{folder / DATABASE}") as snapshot:
        result = check(spark, evolve(snapshot, taken_at=NOW), (), discovers=True)
    return Judged(written.faults, tuple(one.finding for one in result.findings))


@pytest.mark.spark
def test_check_finds_each_planted_fault_and_nothing_else(judged: Judged) -> None:
    """Without rules, on several seeds."""
    missed = [
        fault
        for fault in judged.faults
        if not any(one.kind == fault.kind and is_about(one, fault) for one in judged.findings)
    ]
    assert missed == []
    false = [
        one
        for one in judged.findings
        if not any(fault.kind == one.kind and is_about(one, fault) for fault in judged.faults)
    ]
    assert false == []


@pytest.mark.parametrize("name", MAKERS)
def test_a_seed_gives_the_same_messages_and_another_one_puts_the_faults_elsewhere(name: str) -> None:
    first, again, other = (MAKERS[name](seed, NOW) for seed in (1, 1, 2))
    assert first.changes() == again.changes()
    assert first.faults == again.faults
    assert {one.kind for one in first.faults} >= _KINDS
    places, elsewhere = ({one.place for one in each.faults} for each in (first, other))
    assert len(places & elsewhere) <= len(places) // 2


@pytest.mark.parametrize("name", MAKERS)
def test_the_database_has_each_message_at_its_time(name: str, tmp_path: Path) -> None:
    """The last one of each topic is retained, and the history has all of the last day, after a baseline."""
    recording = MAKERS[name](1, NOW)
    changes = recording.changes()
    assert changes[-1].changed_at <= NOW
    write(recording, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        retained = database.execute("SELECT topic, payload, stored_at, revision, client_id FROM retained").fetchall()
        entries = database.execute(
            "SELECT topic, changed_at, origin FROM retained_history WHERE origin <> 'baseline' ORDER BY seq"
        ).fetchall()
        baseline = database.execute("SELECT topic FROM retained_history WHERE origin = 'baseline'").fetchall()
    last = {change.topic: change for change in changes}
    assert {row[0]: (row[1], row[2], row[4]) for row in retained} == {
        topic: (change.message.payload, change.changed_at, change.client_id)
        for topic, change in last.items()
        if change.message is not None
    }
    assert all(time_of(row[3]) == row[2] for row in retained)
    assert entries == [
        (one.topic, one.changed_at, one.origin.value) for one in changes if one.changed_at >= recording.since
    ]
    assert {topic for (topic,) in baseline} == {one.topic for one in changes if one.changed_at < recording.since}


def test_the_command_writes_a_folder_that_the_other_commands_take(tmp_path: Path) -> None:
    """The list has each fault. A broker started with the configuration goes on with the history."""
    folder = tmp_path / "home"
    result = CliRunner().invoke(main, ["sample", "home", "--out", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    listed = (folder / FAULTS).read_text(encoding="utf-8")
    assert [f"{one['kind']}  {one['place']}" for one in told["faults"]] == listed.splitlines()[::2]
    assert "enable = true" in Path(told["config"]).read_text(encoding="utf-8")


def test_the_command_overwrites_nothing(tmp_path: Path) -> None:
    """Neither a folder with a file nor a file; it says so in one line."""
    (tmp_path / "notes.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "notes.txt"):
        result = CliRunner().invoke(main, ["sample", "plant", "--out", str(out)])
        assert result.exit_code == 1
        assert result.stderr == f"{out}: exists already; remove it, or name another folder with --out\n"
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def test_sparkplug_payloads_can_be_decoded() -> None:
    """The pipeline's own decoder reads the metrics of each birth and each message of data."""
    found = [one.message for one in plant(1, NOW).changes() if one.topic.startswith("spBv1.0/Dresden/")]
    assert found
    for message in found:
        assert message is not None
        assert read(message.payload).metrics
