"""Planted faults in a small building are found, in both databases, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner
from pyspark.sql import SparkSession

from holdfast.core.messages import ChangeOrigin, RetainedChange
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.jobs.check import check
from tests.pipeline.stores import NOW, Filled, database, message

pytestmark = pytest.mark.spark

_MINUTE = 60_000
_ROOMS = 30


def build(filled: Filled) -> None:
    """Fill a building of 30 rooms with seven faults."""

    def put(
        topic: str, payload: bytes, at: int, client_id: str = "c", origin: ChangeOrigin = ChangeOrigin.PUBLISH
    ) -> None:
        revision = store.next_revision()
        stored = evolve(message(topic, payload, client_id=client_id), revision=revision, stored_at=at)
        assert store.put(RetainedChange(topic, revision, at, stored, client_id, origin=origin)).failure is None

    with filled.store() as store:
        for room in range(_ROOMS):
            stale = room == 3
            at = NOW - (20 * 60 if stale else room) * _MINUTE
            value = 400.0 if room == 4 else 20 + room % 5 / 2
            put(f"hq/r{room}/temperature", json.dumps({"t": value}).encode(), at)
            put(f"hq/r{room}/light", b"{" if room == 5 else b'{"on": true}', NOW - room * _MINUTE)
            put(f"hq/r{room}/window", b"open", NOW - room * _MINUTE)
        put("hq/old/config", b"{}", NOW - 31 * 24 * 60 * _MINUTE, "old-device")
        put("hq/older/config", b"{}", NOW - 400 * 24 * 60 * _MINUTE, "old-device")
        for turn in range(6):
            put("hq/r7/window", b"shut", NOW - 10 * _MINUTE, f"gateway-{turn % 2}")
        for change in range(150):
            put("hq/r8/window", b"open" if change % 2 else b"shut", NOW - 5 * _MINUTE)
        put("hq/gateway/status", b"online", NOW - 90 * _MINUTE, "gateway")
        put("hq/gateway/status", b"offline", NOW - 80 * _MINUTE, "gateway", ChangeOrigin.WILL)
        put("hq/gateway/status", b"online", NOW - 20 * _MINUTE, "gateway")


@pytest.mark.parametrize("make", ["sqlite", "postgresql"])
def test_each_planted_fault_is_found_and_no_other(spark: SparkSession, tmp_path: Path, make: str) -> None:
    with database(make, tmp_path, recorded=True) as filled:
        build(filled)
        with snapshot_of(filled.url) as snapshot:
            result = check(spark, evolve(snapshot, taken_at=NOW), (), discovers=True)
            assert check(spark, snapshot, ()).findings == ()
    found = [(each.finding.kind, each.finding.subject, each.finding.topics) for each in result.findings]
    assert sorted(found) == [
        ("flapping", "hq/r8", ("hq/r8/window",)),
        ("lost connection", "hq/gateway/status", ("hq/gateway/status",)),
        ("malformed payloads", "hq/{name}/light", ("hq/r5/light",)),
        ("orphans", "old-device", ("hq/old/config", "hq/older/config")),
        ("several publishers", "hq/r7/window", ("hq/r7/window",)),
        ("stale device", "hq/r3", ("hq/r3/temperature",)),
        ("unusual values", "hq/{name}/temperature .t", ("hq/r4/temperature",)),
    ]


def test_without_a_history_the_messages_alone_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    """And an empty database has no findings."""
    with database("sqlite", tmp_path) as filled:
        with snapshot_of(filled.url) as snapshot:
            assert check(spark, snapshot, (), discovers=True).findings == ()
        build(filled)
        with snapshot_of(filled.url) as snapshot:
            result = check(spark, evolve(snapshot, taken_at=NOW), (), discovers=True)
    assert {each.finding.kind for each in result.findings} == {
        "malformed payloads", "stale device", "unusual values", "orphans",
    }  # fmt: skip


def test_the_command_needs_no_rules(spark: SparkSession, tmp_path: Path) -> None:
    """Known findings do not fail; findings that are gone are told."""
    known = tmp_path / "known.json"
    with database("sqlite", tmp_path) as filled:
        build(filled)
        call = f"check --storage {filled.url} --baseline {known} --snapshot-dir {tmp_path}".split()
        assert CliRunner().invoke(main, [*call, "--write-baseline"]).exit_code == 0
        filled.put(message("hq/r5/light", b'{"on": false}'))
        result = CliRunner().invoke(main, call)
    assert result.exit_code == 0, result.output
    assert "gone     malformed payloads  hq/{name}/light" in result.stdout


@pytest.mark.parametrize("more", [["--no-discovery"], ["--since", "1h"]])
def test_without_rules_and_discovery_nothing_is_judged(more: list[str]) -> None:
    result = CliRunner().invoke(main, ["check", "--storage", "sqlite:///nowhere.db", *more])
    assert result.exit_code == 2
    assert "without --rules there is nothing to judge" in result.stderr
