"""Configuration files for the tests, and their problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config import ConfigError, load

Problems = list[tuple[int | None, str, str]]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """A function that writes text to a configuration file and returns its path."""

    def write_text(text: str) -> Path:
        path = tmp_path / "holdfast.toml"
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write_text


@pytest.fixture
def problems_of(write: Callable[[str], Path]) -> Callable[..., Problems]:
    """A function that returns line, key and message of each problem of a text; all name the right file."""

    def problems_of_text(text: str, allow_anonymous: bool = False) -> Problems:
        path = write(text)
        with pytest.raises(ConfigError) as caught:
            load(path, allow_anonymous=allow_anonymous)
        problems = caught.value.problems
        assert {problem.file for problem in problems} == {str(path)}
        return [(problem.line, problem.key, problem.message) for problem in problems]

    return problems_of_text
