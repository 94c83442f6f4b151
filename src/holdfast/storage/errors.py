"""The failures of a database that its operator is told. Imports nothing, so that commands can name them cheaply."""

from __future__ import annotations


class StoreUnusable(Exception):
    """The database cannot be used. The message tells the operator the reason and the remedy."""


class StoreLate(StoreUnusable):
    """The server of the database is not up yet, or not known yet: nothing answers, or it starts. Waiting helps."""


class StoreDamaged(StoreUnusable):
    """The contents of the database are damaged. ``reason`` says how; the message also tells the broker's remedies."""

    def __init__(self, location: object, reason: str, remedy: str) -> None:
        super().__init__(f"{location}: {reason}; {remedy}")
        self.reason = reason
