"""Java's options for Spark: an archive of classes is made once and then used, and a user's own settings win."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast_pipeline.spark.java import java_options

#: where a user's own options for Java may stand
OWN = ["SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS", "spark-defaults.conf"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java, and a cache that is empty."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return {
        "JAVA_HOME": str(tmp_path / "jdk"), "SPARK_HOME": str(tmp_path / "spark"),
        "XDG_CACHE_HOME": str(tmp_path / "cache dir"),
    }  # fmt: skip


def cache(environment: dict[str, str]) -> Path:
    """Return the folder of the archives."""
    return Path(environment["XDG_CACHE_HOME"], "holdfast")


def write(options: str, age: float = 60) -> None:
    """Write the archive that Java was told to write, some seconds ago."""
    path = Path(options.split("ArchiveClassesAtExit=")[1].split('"')[0])
    path.write_bytes(b"classes")
    os.utime(path, (time.time() - age,) * 2)


def test_the_first_command_writes_an_archive_and_the_next_ones_use_it(environment: dict[str, str]) -> None:
    first = java_options(environment, 1)
    assert f'"-XX:ArchiveClassesAtExit={cache(environment)}/' in first
    write(first)
    second = java_options(environment, 2)
    assert f'"-XX:SharedArchiveFile={cache(environment)}/' in second
    assert java_options(environment, 3) == second
    assert len(list(cache(environment).iterdir())) == 1
    assert cache(environment).stat().st_mode & 0o777 == 0o700


def test_an_archive_that_is_being_written_is_not_used(environment: dict[str, str]) -> None:
    write(java_options(environment, 1), age=0)
    assert "ArchiveClassesAtExit" in java_options(environment, 2)


def test_two_commands_at_once_leave_one_archive(environment: dict[str, str]) -> None:
    first, second = java_options(environment, 1), java_options(environment, 2)
    assert first != second
    write(first)
    write(second)
    assert "SharedArchiveFile" in java_options(environment, 3)
    assert len(list(cache(environment).iterdir())) == 1


def test_another_java_or_other_jars_have_an_archive_of_their_own(environment: dict[str, str]) -> None:
    write(java_options(environment, 1))
    assert "SharedArchiveFile" in java_options(environment, 2)
    os.utime(Path(environment["SPARK_HOME"], "jars"), (1, 1))
    assert "ArchiveClassesAtExit" in java_options(environment, 3)


def test_archives_that_nobody_uses_are_removed(environment: dict[str, str]) -> None:
    java_options(environment, 1)
    old, recent = cache(environment) / "a.jsa", cache(environment) / "b.jsa"
    for path, days in ((old, 31), (recent, 29)):
        path.touch()
        os.utime(path, (time.time() - days * 86_400,) * 2)
    java_options(environment, 2)
    assert (old.exists(), recent.exists()) == (False, True)


@pytest.mark.parametrize("name", OWN)
def test_a_users_own_archive_is_the_only_one(environment: dict[str, str], name: str) -> None:
    """Java ends when it is told of two."""
    own = "-XX:SharedArchiveFile=/own.jsa"
    if name == "spark-defaults.conf":
        conf = Path(environment["SPARK_HOME"], "conf")
        conf.mkdir()
        (conf / name).write_text(f"spark.driver.extraJavaOptions {own}\n")
    else:
        environment[name] = f"-Dx=1 {own}"
    assert "Archive" not in java_options(environment, 1)


def test_without_a_folder_of_ones_own_there_is_no_archive(environment: dict[str, str]) -> None:
    """Others must not be able to place classes there."""
    cache(environment).mkdir(parents=True)
    cache(environment).chmod(0o777)
    assert "Archive" not in java_options(environment, 1)
    for place in ("relative", "/dev/null/no"):
        assert "Archive" not in java_options({**environment, "XDG_CACHE_HOME": place}, 1)
    assert "Archive" not in java_options({**environment, "XDG_CACHE_HOME": "", "HOME": ""}, 1)


def test_without_java_there_is_no_archive(environment: dict[str, str]) -> None:
    assert "Archive" not in java_options({**environment, "JAVA_HOME": "/nowhere"}, 1)


@pytest.mark.parametrize("folder", ["cache", "relative"])
def test_a_small_input_needs_no_optimising_compiler(environment: dict[str, str], folder: str) -> None:
    """With an archive of classes, and without one."""
    environment["XDG_CACHE_HOME"] = str(Path(environment["XDG_CACHE_HOME"], folder)) if folder == "cache" else folder
    assert "-XX:TieredStopAtLevel=1" in java_options(environment, 1, is_small=True)
    assert "TieredStopAtLevel" not in java_options(environment, 1)


def test_a_server_has_another_collector_unless_the_user_has_chosen_one(environment: dict[str, str]) -> None:
    assert "-XX:+UseParallelGC" not in java_options(environment, 1)
    assert "-XX:+UseParallelGC" in java_options(environment, 1, is_server=True)
    environment["JDK_JAVA_OPTIONS"] = "-XX:+UseZGC"
    assert "-XX:+UseParallelGC" not in java_options(environment, 1, is_server=True)
