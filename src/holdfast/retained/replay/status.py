"""How far a replay has come, and what it is doing."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class ReplayState(Enum):
    """What a replay is doing."""

    COMMITTING = "waits until what was accepted before it is committed"
    WAITING = "waits in line until another replay is over"
    READY = "may take a step"
    READING = "waits for the store"
    RESTING = "waits for room"
    THROTTLED = "waits for the rates"
    OVER = "finished, failed or stopped"


@frozen
class ReplayStatus:
    """A replay as of now: messages delivered so far and read but not delivered, the last topic passed, and its age.

    The age is in seconds.
    """

    number: int
    client_id: str
    topic_filter: str
    delivered: int
    held: int
    cursor: str
    state: ReplayState
    age: float
