"""The failures of a database that its operator is told. Imports nothing, so that commands can name them cheaply."""

from __future__ import annotations


class StoreUnusable(Exception):
    """The database cannot be used. The message tells the operator the reason and the remedy."""


class StoreDamaged(StoreUnusable):
    """The contents of the database are damaged."""
