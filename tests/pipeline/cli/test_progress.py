"""The options of a command choose how its progress is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_pipeline import progress as display
from holdfast_pipeline.cli.root import main
from tests.pipeline.stores import database, message

Shown = list[tuple[str, bool, bool]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What commands show: the name, and whether they want JSON or a bar."""
    found: Shown = []

    @contextmanager
    def noted(job: str, *, as_json: bool, bar: bool) -> Iterator[None]:
        found.append((job, as_json, bar))
        yield

    monkeypatch.setattr(display, "shown", noted)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [("sync", False, True)]),
        (("--json",), [("sync", True, True)]),
        (("--verbose",), [("sync", False, False)]),
        (("--quiet",), []),
    ],
)
def test_options_choose_the_display(shown: Shown, tmp_path: Path, options: tuple[str, ...], expected: Shown) -> None:
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(message("a"))
        result = CliRunner().invoke(main, ["sync", "--storage", filled.url, "--to", str(tmp_path / "lake"), *options])
    assert result.exit_code == 0, result.output
    assert shown == expected


@pytest.mark.parametrize(
    ("options", "key", "expected"),
    [((), "", ["first", "second"]), (("--quiet",), "", []), ((), "quiet = true", ["second"])],
)
def test_jobs_are_shown_by_their_names(
    shown: Shown, tmp_path: Path, options: tuple[str, ...], key: str, expected: list[str]
) -> None:
    """``run --quiet`` is for all of them, and the key ``quiet`` for one."""
    file = tmp_path / "jobs.toml"
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(message("a"))
        common = f'command = "sync"\nstorage = "{filled.url}"\nto = "{tmp_path}/lake"\n'
        file.write_text(f"[jobs.first]\n{common}{key}\n[jobs.second]\n{common}")
        result = CliRunner().invoke(main, ["run", str(file), *options])
    assert result.exit_code == 0, result.output
    assert [name for name, _, _ in shown] == expected
