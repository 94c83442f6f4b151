"""The refusal of a request in User Properties."""

from __future__ import annotations


class BadRequest(Exception):
    """A request is given twice, or is not understood. The text names the property, and what is allowed."""
