"""``holdfast`` itself, and ``holdfast config reference``."""

from __future__ import annotations

from importlib import metadata
from importlib.metadata import PackageNotFoundError

import pytest
from click.testing import CliRunner

from holdfast.commands import main
from holdfast.config.reference import render_markdown, render_toml


def test_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "1.2.3")
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, "holdfast 1.2.3\n")


def test_the_version_in_a_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, "holdfast (not installed)\n")


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "check-config" in result.output
    assert "config" in result.output


def test_an_unknown_command_has_status_2() -> None:
    assert CliRunner().invoke(main, ["start"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], render_toml()), (["--format", "toml"], render_toml()), (["--format", "markdown"], render_markdown())],
)
def test_the_reference_is_printed_unchanged(arguments: list[str], expected: str) -> None:
    result = CliRunner().invoke(main, ["config", "reference", *arguments])
    assert (result.exit_code, result.stdout, result.stderr) == (0, expected, "")


def test_another_format_has_status_2() -> None:
    assert CliRunner().invoke(main, ["config", "reference", "--format", "yaml"]).exit_code == 2
