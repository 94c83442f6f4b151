"""The error of the pipeline."""

from __future__ import annotations


class PipelineError(Exception):
    """The user can correct this error; its text names the mistake and the remedy."""
