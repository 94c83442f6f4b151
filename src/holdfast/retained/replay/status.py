"""The state of a replay, and its status for operators."""

from __future__ import annotations

from enum import Enum, auto

from attrs import frozen


class ReplayState(Enum):
    """The states of a replay. ``replay.py`` has the table of what each waits for. Operators see the names."""

    COMMITTING = auto()  #: waits for the commit of changes accepted before the SUBSCRIBE
    WAITING = auto()  #: waits until another replay ends
    READY = auto()  #: waits for its turn
    READING = auto()  #: waits for the store
    RESTING = auto()  #: waits for room
    THROTTLED = auto()  #: waits for a rate
    OVER = auto()  #: finished, failed or stopped


@frozen
class ReplayStatus:
    """A replay as of now. ``held`` messages are read and not delivered; ``age`` is in seconds."""

    number: int
    client_id: str
    topic_filter: str
    delivered: int
    held: int
    cursor: str  #: the last topic that was delivered or skipped
    state: ReplayState
    age: float
