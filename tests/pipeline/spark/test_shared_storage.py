"""Storage that executors on other hosts cannot open is refused before a job reads anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.retained.staging import StagingUnusable, staging_area_for
from holdfast_pipeline import Source
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.spark.shared_storage import (
    require_file,
    require_history,
    require_staging,
    shared_folder,
    shared_snapshot,
    uses_other_hosts,
)
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
    monkeypatch.setattr("holdfast_pipeline.spark.shared_storage.has_remote_tasks", lambda _spark: True)


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_an_sqlite_database_is_read_and_written_through_a_folder_that_is_shared(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The folder must be named; other hosts cannot read its history at all."""
    with database("sqlite", tmp_path) as filled:
        with (
            pytest.raises(PipelineError, match=r"other hosts, which cannot read a copy .*--snapshot-dir"),
            shared_snapshot(spark, filled.url, None, None),
        ):
            raise AssertionError("was taken")
        with pytest.raises(PipelineError, match="history is read from the file itself"):
            require_history(spark, Source(filled.url))
        with pytest.raises(PipelineError, match=r"cannot stage rows beside the database; .*--staging"):
            require_staging(spark, filled.url, None)


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
