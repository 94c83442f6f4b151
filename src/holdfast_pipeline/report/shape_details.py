"""What the page of a shape shows besides its totals, as plain values. Times are milliseconds since the epoch."""

from __future__ import annotations

import re
from hashlib import sha256

from attrs import frozen

#: The field of payloads that are numbers themselves. A field of an object has its name after a dot.
WHOLE = "$"
_SLUG = 40


@frozen
class ExampleMessage:
    """A retained message with the beginning of its payload, stored ``at``."""

    topic: str
    payload: str
    at: int


@frozen
class KindTotals:
    """The messages of a shape with one kind of payload, with the newest and the oldest of them."""

    kind: str
    messages: int
    bytes: int
    newest: ExampleMessage
    oldest: ExampleMessage


@frozen
class ValueStep:
    """The values of a step of time, which begins at ``at``."""

    at: int
    least: float
    mean: float
    most: float


@frozen
class NumberTotals:
    """The numbers in one field of the retained payloads: their quantiles, their distribution and their course.

    ``bands`` counts the values between ``low`` and ``high`` (the quantiles 0.01 and 0.99) in parts of equal width; the
    outermost ones also have the values beyond. ``course`` has the values in the history, empty without one.
    """

    field: str
    count: int
    least: float
    low: float
    median: float
    high: float
    most: float
    bands: tuple[int, ...] = ()
    course: tuple[ValueStep, ...] = ()


@frozen
class ShapeDetails:
    """The kinds of payloads of a shape, the most frequent first, and its fields with numbers."""

    kinds: tuple[KindTotals, ...] = ()
    numbers: tuple[NumberTotals, ...] = ()

    @property
    def newest(self) -> ExampleMessage | None:
        """The newest message."""
        return max((one.newest for one in self.kinds), key=lambda one: (one.at, one.topic), default=None)

    @property
    def oldest(self) -> ExampleMessage | None:
        """The oldest message."""
        return min((one.oldest for one in self.kinds), key=lambda one: (one.at, one.topic), default=None)


def anchor(shape: str) -> str:
    """Return the id of a shape's page: readable, the same in each report, and of letters, digits and hyphens only."""
    words = re.sub("[^a-z0-9]+", "-", shape.lower()).strip("-")[:_SLUG].strip("-")
    return f"shape-{words or 'x'}-{sha256(shape.encode()).hexdigest()[:8]}"
