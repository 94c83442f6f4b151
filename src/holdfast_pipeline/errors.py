"""The errors of the pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.config.toml import ConfigProblem

_SHOWN_PROBLEMS = 5


class PipelineError(Exception):
    """The user can correct this error; its text names the mistake and the remedy."""


class WrongUsage(PipelineError):
    """The options contradict each other, lack something or have an impossible value. Nothing was tried."""


def text_of(problems: Iterable[ConfigProblem]) -> str:
    """Return the first problems of a TOML file in one line, in the order of the file."""
    told = [str(each) for each in sorted(problems, key=lambda each: (each.line or 0, each.key))]
    more = len(told) - _SHOWN_PROBLEMS
    return "; ".join(told[:_SHOWN_PROBLEMS] + ([f"and {more} more problems"] if more > 0 else []))
