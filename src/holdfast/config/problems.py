"""What is wrong with a configuration, and where, written for the person at the console."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen


@frozen
class ConfigProblem:
    """One thing wrong in one place.

    ``line`` counts from 1 and is None where no line is to blame (a missing file, the command line). ``key`` is the
    dotted key, or empty where no single key is to blame (a syntax error).
    """

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class ConfigError(Exception):
    """A configuration that cannot be used: all its problems, in the order of the file."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems: tuple[ConfigProblem, ...] = tuple(
            sorted(problems, key=lambda problem: (problem.line or 0, problem.key))
        )
        super().__init__("\n".join(map(str, self.problems)))
