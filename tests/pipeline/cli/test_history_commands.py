"""The commands ``archive``, ``compact`` and ``asof``: their results and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from holdfast_pipeline import Source
from holdfast_pipeline.archive.coverage import require_coverage
from holdfast_pipeline.cli.options import milliseconds
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.archive import archive
from holdfast_pipeline.jobs.asof import moment_at
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.stores import NOW, Filled, fill, message

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

#: 22:13:20 in the evening, UTC: midnight is 6400 seconds away.
_EVENING = "2023-11-14"
_MIDNIGHT = NOW + 6_400_000
_DAY = 86_400_000

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, arguments)


def refused(result: Result) -> str:
    """Run a command that is refused; return its line."""
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return str(line)


@pytest.mark.parametrize("recorded", ["postgresql"], indirect=True)
def test_a_day_ends_at_midnight_in_utc_and_an_incomplete_day_is_completed_later(
    run: Run, spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """Exact to the millisecond; a day that was compacted early is written again once it is complete."""
    archiving = ("archive", "--storage", recorded.url, "--out", "bronze", "--no-confirm", "--json")
    compact = ("compact", "--archive", "bronze", "--out", "silver")
    with recorded.store() as store:
        fill(store, [message("a"), message("b")], NOW)
    run(*archiving)
    assert run(*compact, "--unfinished").stdout == f"2 changes of {_EVENING} were compacted to silver\n"
    with recorded.store() as store:
        fill(store, [message("a", b"last")], _MIDNIGHT - 1)
        fill(store, [message("a", b"first")], _MIDNIGHT)
    assert json.loads(run(*archiving).stdout) == {"before": 3, "last_seq": 5}
    told = json.loads(run(*compact, "--json").stdout)
    assert told == {"days": [_EVENING], "entries": 3, "last_seq": 4, "unfinished": "2023-11-15"}
    asof = ("asof", "2023-11-15T00:59:59.999+01:00", "--out", "then", "--overwrite", "--json")
    manifests = [
        json.loads(run(*asof, *place).stdout) for place in (("--archive", "silver"), ("--storage", recorded.url))
    ]
    assert manifests[0] == manifests[1]
    assert (manifests[0]["rows"], manifests[0]["last_seq"]) == (2, 4)
    found = spark.read.parquet(str(tmp_path / "then/data")).collect()
    assert {bytes(row.payload) for row in found} == {b"x", b"last"}


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_days_without_changes_are_covered(run: Run, recorded: Filled) -> None:
    """Nothing was retained then, and there is no file for these days."""
    with recorded.store():
        pass
    run("archive", "--storage", recorded.url, "--out", "bronze", "--no-confirm")
    assert "nothing to compact: bronze has no changes yet" in run(
        "compact", "--archive", "bronze", "--out", "silver", "--unfinished"
    ).stdout  # fmt: skip
    recorded.put(message("a"), at=NOW + 2 * _DAY)
    run("archive", "--storage", recorded.url, "--out", "bronze", "--no-confirm")
    said = run("compact", "--archive", "bronze", "--out", "silver").stdout
    assert "nothing to compact: all complete days of bronze are in silver. 2023-11-16 is complete once" in said
    told = run("asof", "2023-11-15", "--archive", "silver", "--out", "then", "--json")
    assert json.loads(told.stdout)["rows"] == 0


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_a_time_that_is_not_covered_is_refused_with_the_covered_times(
    run: Run, recorded: Filled, tmp_path: Path
) -> None:
    """Also times far in the past or the future, for a database and for an archive; nothing is written."""
    recorded.put(message("a"))
    recorded.put(message("b"), at=NOW + 1000)
    run("archive", "--storage", recorded.url, "--out", "bronze", "--no-confirm")
    source, archived = Source(recorded.url), require_coverage(Folder(str(tmp_path / "bronze")))
    earliest, end = "2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.000Z"
    covered = f"it covers the time from {earliest} to before {end}"
    for early in ("0001-01-01", "1969-12-31T23:59:59-14:00", "2023-11-14T22:13:19.999Z", "9999d"):
        with pytest.raises(PipelineError, match=f"the earliest possible time is {earliest}$"):
            moment_at(source, milliseconds(early))
        with pytest.raises(PipelineError, match=f"{covered}$"):
            archived.moment(milliseconds(early))
    for late in ("9999-12-31T23:59:59-14:00", "999999999999999", "2100-02-28"):
        with pytest.raises(PipelineError, match="is still to come"):
            moment_at(source, milliseconds(late))
        with pytest.raises(PipelineError, match=covered):
            archived.moment(milliseconds(late))
    for nonsense in ("2023-02-30", "10000-01-01", "1e3", "", "now()"):
        with pytest.raises(PipelineError, match="is not a time; write it as"):
            milliseconds(nonsense)
    assert refused(run("asof", "2000-01-01", "--archive", "bronze", "--out", "then")).endswith(covered)
    assert not Path("then").exists()


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_a_wrong_folder_is_named(run: Run, recorded: Filled) -> None:
    """A missing folder, a folder without an archive, a file, or the folder of another database."""
    recorded.put(message("a"))
    run("archive", "--storage", recorded.url, "--out", "bronze", "--no-confirm")
    Path("file").write_text("no folder")
    for folder, content in (("torn", '{"store": "x"'), ("other", '{"columns": []}')):
        Path(folder).mkdir()
        Path(folder, "archive.json").write_text(content)
    for place, reason in (
        ("bronze/data", "holds no archive of a history"),
        ("torn", "torn/archive.json: cannot be read"),
        ("other", "other/archive.json: is not the coverage of an archive"),
        ("file", "file: is a file; name a folder"),
    ):
        with pytest.raises(PipelineError, match=reason):
            require_coverage(Folder(place))
    assert "holds no archive of a history" in refused(run("asof", "1m", "--archive", "nowhere", "--out", "then"))
    assert refused(run("compact", "--archive", "bronze", "--out", "file")) == "file: is a file; name a folder"
    assert "name a folder apart from it" in refused(run("compact", "--archive", "bronze", "--out", "bronze/silver"))
    wrong = run("asof", "1m", "--archive", "bronze", "--storage", recorded.url, "--out", "then")
    assert wrong.exit_code == 2
    assert wrong.stderr.rstrip() == "name either an archive (--archive) or a database (--storage or --config)"
    Path("bronze/data").rename("bronze/elsewhere")
    assert "bronze/data" in refused(run("compact", "--archive", "bronze", "--out", "silver", "--unfinished"))


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_an_archive_follows_with_the_given_interval(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """Also a fraction of a second; it ends after a signal."""
    recorded.put(message("a"))
    confirmed = list[int]()
    done = archive(
        spark, Source(recorded.url), Folder(str(tmp_path / "bronze")), confirmed.append, follow=0.2,
        stopped=lambda: confirmed[-1] == 2,
    )  # fmt: skip
    assert (done.last_seq, confirmed) == (2, [0, 2])
