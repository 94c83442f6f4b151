"""Storage that executors on other hosts cannot open is refused before a job reads anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.retained.staging import StagingUnusable, staging_area_for
from holdfast_pipeline import Source
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.spark.session import (
    refuse_history,
    refuse_snapshot,
    refuse_staging,
    require_file,
    shared_folder,
    uses_other_hosts,
)
from tests.pipeline.commands import COMMAND, run
from tests.pipeline.stores import database


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_masters_on_this_host(master: str) -> None:
    """Also a Spark Connect server that was started here."""
    assert not uses_other_hosts(master, {})
    assert not uses_other_hosts(master, {"SPARK_REMOTE": "local[2]"})
    assert not uses_other_hosts(master, {"SPARK_REMOTE": "sc://localhost", "SPARK_LOCAL_REMOTE": "1"})


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "yarn", "k8s://https://there:443", ""])
def test_masters_that_run_tasks_anywhere(master: str) -> None:
    """And any master behind a Spark Connect server elsewhere."""
    assert uses_other_hosts(master, {})
    assert uses_other_hosts("local[2]", {"SPARK_REMOTE": "sc://there:15002"})


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that tasks run on other hosts."""
    monkeypatch.setattr("holdfast_pipeline.spark.session.has_remote_tasks", lambda _spark: True)


def test_an_sqlite_database_is_read_and_written_through_a_folder_that_is_shared() -> None:
    """The folder must be named; other hosts cannot read its history at all. Postgres and a lake need no folder."""
    url, postgres = "sqlite:////there/holdfast.db", "postgresql://there/holdfast"
    with pytest.raises(PipelineError, match=r"other hosts, which cannot read this host.*--snapshot-dir"):
        refuse_snapshot(url, None, None, None)
    with pytest.raises(PipelineError, match=r"history is read from the file itself, .*--lake"):
        refuse_history(Source(url))
    with pytest.raises(PipelineError, match=r"cannot stage rows beside the database; .*--staging"):
        refuse_staging(url, None)
    refuse_snapshot(url, None, "/shared", None)
    refuse_snapshot(None, "holdfast.toml", None, "/lake")
    refuse_staging(url, "/shared")
    refuse_snapshot(postgres, None, None, None)
    refuse_history(Source(postgres))
    refuse_staging(postgres, None)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("time", [(), ("2026-11-21T10:00:00Z",)], ids=["of now", "of a past time"])
def test_a_job_that_no_cluster_can_do_is_refused_before_it_connects(tmp_path: Path, time: tuple[str, ...]) -> None:
    """This cluster does not exist: Spark would try it for a minute, and then say that it does not answer."""
    with database("sqlite", tmp_path, recorded=True) as filled:
        done = run(
            COMMAND, "asof", *time, "--quiet", "--storage", filled.url, "--out", tmp_path / "out",
            settings={"MASTER": "spark://127.0.0.1:1"},
        )  # fmt: skip
    assert done.returncode == 1
    assert "the executors may be on other hosts" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_tasks_check_that_they_see_shared_files(spark: SparkSession, tmp_path: Path) -> None:
    """They compare its content: another file with the same path is refused."""
    shared_folder(spark, str(tmp_path / "shared"))
    assert list((tmp_path / "shared").iterdir()) == []
    here = tmp_path / "here"
    here.write_bytes(b"what this host sees")
    require_file(spark, str(here))
    (tmp_path / "there").write_bytes(b"what another host sees")
    for path, content, problem in (
        (tmp_path / "there", here.read_bytes(), "another file is there"),
        (tmp_path / "none", b"", "No such file or directory"),
    ):
        reader = spark.read.format("retained_file_check").option("file", str(path)).option("content", content.hex())
        rows = reader.option("tasks", "2").load().collect()
        assert [row.problem for row in rows] == [problem, problem]


def test_a_task_that_cannot_stage_rows_names_its_host(tmp_path: Path) -> None:
    """The shared folder does not exist on that host."""
    stage = staging_area_for("sqlite:////nowhere/store.db", "job", str(tmp_path / "staging"))
    with pytest.raises(StagingUnusable, match=r"has no staging area on .*, where a task runs"):
        stage.put(1, [])
