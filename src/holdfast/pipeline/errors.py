"""What goes wrong in a way that its user can do something about."""

from __future__ import annotations


class PipelineError(Exception):
    """Something cannot be read, written or done as asked; the text says what, and what to do."""
