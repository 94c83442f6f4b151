"""The error of the pipeline."""

from __future__ import annotations


class PipelineError(Exception):
    """The user can correct this error; its text says what is wrong and what to do."""
