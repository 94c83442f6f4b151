"""The Java that is there is named where Spark cannot take it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.pipeline.spark.java import java_problem


def java_in(home: Path, says: str) -> dict[str, str]:
    """Install what says something when asked for its version; return the environment that leads to it."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize("version", ["17.0.21", "21", "25-ea", "17.0.21.1"])
def test_nothing_is_wrong_with_17_or_newer(tmp_path: Path, version: str) -> None:
    """Whoever has made it."""
    assert java_problem(java_in(tmp_path / "java", f'openjdk version "{version}" 2026-11-17')) is None


@pytest.mark.parametrize(("version", "release"), [("1.8.0_402", 8), ("11.0.22", 11)])
def test_an_old_one_is_named_with_its_place(tmp_path: Path, version: str, release: int) -> None:
    """And what to install."""
    environment = java_in(tmp_path / "java", f'java version "{version}"')
    told = java_problem(environment)
    assert told is not None
    assert told.startswith(f"JAVA_HOME is {tmp_path / 'java'}, which is Java {release}; Spark needs Java 17 or newer: ")
    on_the_path = java_problem({"PATH": f"{tmp_path / 'java/bin'}:/usr/bin:/bin"})
    assert on_the_path is not None
    assert on_the_path.startswith(f"{tmp_path / 'java/bin/java'}, which is Java {release}; ")


def test_where_there_is_none_it_is_said_where_it_was_looked_for(tmp_path: Path) -> None:
    """In JAVA_HOME where that is set, else in PATH."""
    told = java_problem({"JAVA_HOME": str(tmp_path)})
    assert told is not None
    assert told.startswith(
        f"JAVA_HOME is {tmp_path}, which has no bin/java; Spark needs Java 17 or newer: install openjdk"
    )
    told = java_problem({"PATH": str(tmp_path)})
    assert told is not None
    assert told.startswith("PATH has no java; Spark needs Java 17 or newer: ")


def test_what_does_not_say_its_version_is_quoted(tmp_path: Path) -> None:
    """It may be a broken one."""
    told = java_problem(java_in(tmp_path / "java", "Segmentation fault"))
    assert told is not None
    assert "which does not tell its version ('Segmentation fault')" in told
