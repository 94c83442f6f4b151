"""Nodes with one broken line each: a bench that finds nothing in them has no teeth.

A node gets the name of its break in the environment, and the folder ``breaking`` in its path, whose ``sitecustomize``
calls :func:`install`. It changes one function of one module when that has been imported. Nothing in the product knows.
"""

from __future__ import annotations

BREAKS: dict[str, object] = {}


def environment_of(name: str | None) -> dict[str, str]:
    """Return the environment of nodes that run with a break; none without a name."""
    return {}
