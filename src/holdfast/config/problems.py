"""The problems of a configuration, each with its position, written for the operator."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen


@frozen
class ConfigProblem:
    """One problem at one position.

    ``line`` counts from 1, and is None without a line (a missing file, the command line). ``key`` is the dotted key,
    and is empty without a single key (a syntax error).
    """

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class ConfigError(Exception):
    """The configuration is unusable. Has all its problems, in the order of the file."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems: tuple[ConfigProblem, ...] = tuple(
            sorted(problems, key=lambda problem: (problem.line or 0, problem.key))
        )
        super().__init__("\n".join(map(str, self.problems)))


class FileUnreadable(ConfigError):
    """The configuration file is missing or cannot be read, so nothing is known about its content."""
