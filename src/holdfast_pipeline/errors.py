"""The error of the pipeline."""

from __future__ import annotations


class PipelineError(Exception):
    """The user can correct this error; its text names the mistake and the remedy."""


class WrongUsage(PipelineError):
    """The options contradict each other, lack something or have an impossible value. Nothing was tried."""
