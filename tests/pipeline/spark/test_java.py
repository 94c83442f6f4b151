"""A Java that Spark cannot run is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_pipeline.spark.java import java_problem


def java_in(home: Path, says: str) -> dict[str, str]:
    """Install a program that prints a text as its version; return the environment that leads to it."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize("version", ["17.0.21", "21", "25-ea", "17.0.21.1"])
def test_java_17_and_newer_are_accepted(tmp_path: Path, version: str) -> None:
    """Of any vendor."""
    assert java_problem(java_in(tmp_path / "java", f'openjdk version "{version}" 2026-11-17')) is None


@pytest.mark.parametrize(("version", "release"), [("1.8.0_402", 8), ("11.0.22", 11)])
def test_an_old_java_is_named_with_its_path(tmp_path: Path, version: str, release: int) -> None:
    """And with the remedy."""
    environment = java_in(tmp_path / "java", f'java version "{version}"')
    told = java_problem(environment)
    assert told is not None
    assert told.startswith(f"JAVA_HOME is {tmp_path / 'java'}, which is Java {release}; Spark needs Java 17 or newer: ")
    on_the_path = java_problem({"PATH": f"{tmp_path / 'java/bin'}:/usr/bin:/bin"})
    assert on_the_path is not None
    assert on_the_path.startswith(f"{tmp_path / 'java/bin/java'}, which is Java {release}; ")


def test_a_missing_java_is_reported_with_the_searched_path(tmp_path: Path) -> None:
    """JAVA_HOME if it is set, otherwise PATH."""
    told = java_problem({"JAVA_HOME": str(tmp_path)})
    assert told is not None
    assert told.startswith(
        f"JAVA_HOME is {tmp_path}, which has no bin/java; Spark needs Java 17 or newer: install openjdk"
    )
    told = java_problem({"PATH": str(tmp_path)})
    assert told is not None
    assert told.startswith("PATH has no java; Spark needs Java 17 or newer: ")


def test_a_java_without_a_version_is_quoted(tmp_path: Path) -> None:
    """It may be broken."""
    told = java_problem(java_in(tmp_path / "java", "Segmentation fault"))
    assert told is not None
    assert "which does not tell its version ('Segmentation fault')" in told
