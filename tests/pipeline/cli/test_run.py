"""``run``: all mistakes in the file are told before the first job, and the jobs share one Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from holdfast_pipeline.cli.root import main
from tests.docs.pages import ROOT, blocks
from tests.pipeline.stores import database, message


def run(folder: Path, text: str, *more: str) -> Result:
    """Run the jobs in a file with this text."""
    file = folder / "jobs.toml"
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(main, ["run", str(file), *more])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no job; write one as [jobs.NAME]"),
        ("[jobs.a]\n[job.b]\n", "job: is no table of this file; allowed: [defaults] and [jobs.NAME]"),
        ("jobs = 3\n", "jobs.toml:1: jobs: there is no job"),
        ("[jobs]\na = 1\n", "jobs.toml:2: jobs.a: is no table; write [jobs.NAME]"),
        ("[jobs.night]\n", "jobs.toml:1: jobs.night: 'night' is no command; allowed: asof, "),
        ("[jobs.a]\ncommand = 'server'\n", "jobs.toml:2: jobs.a.command: 'server' is no command"),
        (
            "[jobs.report]\ndeep = 3\n",
            "jobs.toml:2: jobs.report.deep: report has no such option; it has: batch_deliver_number,",
        ),
        ("[jobs.report]\njson = true\n", "jobs.toml:2: jobs.report.json: report has no such option"),
        ("[jobs.report]\ndepth = 'deep'\n", "jobs.toml:2: jobs.report.depth: Invalid value for '--depth': 'deep'"),
        ("[defaults]\ndepth = 0\n\n[jobs.report]\n", "jobs.toml:2: defaults.depth: Invalid value for '--depth': 0"),
        ("[jobs.report]\ndepth = [1]\n", "jobs.toml:2: jobs.report.depth: takes one value, not a list"),
        (
            "[jobs.report]\ndepth = 1979-05-27\n",
            "jobs.report.depth: is datetime.date(1979, 5, 27); allowed: a text or a",
        ),
        ("[jobs.asof]\noverwrite = 'yes'\n", "jobs.toml:2: jobs.asof.overwrite: is 'yes'; allowed: true, false"),
        (
            "[jobs.report]\non_failure = 'retry'\n",
            "jobs.toml:2: jobs.report.on_failure: is 'retry'; allowed: stop, continue",
        ),
        ("[jobs.asof]\n", "jobs.toml:1: jobs.asof: Missing option '--out'"),
        ("[jobs.import]\nformat = 'ndjson'\n", "jobs.toml:1: jobs.import: Missing argument 'SOURCE'"),
        (
            "[defaults]\nconfg = 'x'\n[jobs.report]\n",
            "jobs.toml:2: defaults.confg: no command of this file has this option",
        ),
        ("[jobs.report\n", "jobs.toml:1"),
    ],
)
def test_each_mistake_is_told_with_its_line_before_any_job(tmp_path: Path, text: str, problem: str) -> None:
    result = run(tmp_path, text)
    assert result.exit_code == 2, result.output
    assert problem in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["run", str(tmp_path / "none.toml")])
    assert result.exit_code == 2
    assert "none.toml" in result.stderr


def test_options_become_arguments(tmp_path: Path) -> None:
    """Values that begin with a hyphen stay values. Defaults are for the commands that have them."""
    text = """
        [defaults]
        config = "/etc/h.toml"
        lake = "bronze"
        [jobs.then]
        command = "asof"
        time = "-1h"
        out = "-x"
        [jobs.filters]
        command = "report"
        only = "filters"
        pattern = ["a/#", "-b"]
        delivery-rate = "10/s"
        verbose = false
    """
    result = run(tmp_path, text, "--dry-run")
    assert [line.removeprefix("holdfast-pipeline ") for line in result.stdout.splitlines()] == [
        "asof --config=/etc/h.toml --lake=bronze --out=-x -- -1h",
        "report --config=/etc/h.toml --lake=bronze --only=filters '--pattern=a/#' --pattern=-b --delivery-rate=10/s",
    ]
    only = run(tmp_path, text, "--dry-run", "--only", "then")
    assert len(only.stdout.splitlines()) == 1
    assert "has no job other" in run(tmp_path, text, "--only", "other").stderr


def test_the_file_of_the_page_is_right(tmp_path: Path) -> None:
    (text,) = [block.text for block in blocks(ROOT / "docs" / "pipeline" / "run.md") if block.language == "toml"]
    result = run(tmp_path, text, "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["sync", "check", "report"]


@pytest.mark.spark
def test_jobs_share_a_session_and_the_worst_status_counts(spark: SparkSession, tmp_path: Path) -> None:
    """A failed job leaves the later ones out, unless the file says otherwise."""

    def told(text: str, status: int, *more: str) -> Any:
        result = run(tmp_path, text, "--json", *more)
        assert result.exit_code == status, result.output
        return [json.loads(line) for line in result.stdout.splitlines()], result.stderr

    with database("sqlite", tmp_path) as filled:
        filled.put(*(message(f"a/{number}/t", b"{" if number == 7 else b"{}") for number in range(20)))
        head, tree_ = f"[defaults]\nstorage = '{filled.url}'\n", "command = 'report'\nonly = 'tree'\n"
        (tree, check, whole), _ = told(f"{head}[jobs.tree]\n{tree_}[jobs.check]\n", 3)
        assert tree["messages"] == check["messages"] == 20
        assert [(each["name"], each["status"]) for each in whole["jobs"]] == [("tree", 0), ("check", 3)]
        failing = f"{head}[jobs.then]\ncommand = 'asof'\ntime = '1h'\nout = '{tmp_path}/then'\n[jobs.tree]\n{tree_}"
        (whole,), why = told(failing, 1)
        assert (whole["left_out"], [each["status"] for each in whole["jobs"]]) == (1, [1])
        assert "there is no history" in why
        (_, whole), _ = told(failing.replace("[jobs.then]", "[jobs.then]\non_failure = 'continue'"), 1)
        assert [each["status"] for each in whole["jobs"]] == [1, 0]
    assert spark.range(1).count() == 1
