"""The messages that devices have published until a moment, the faults planted among them, and their database.

How it works. A home or a plant says at which times its devices publish; nothing waits for these times. The history has
the last 24 hours; what was published earlier was retained when it began. All random numbers come from one seed, so the
same seed gives the same messages. Each seed puts the faults on other devices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import cos, pi
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from attrs import frozen

from holdfast.commands.api import write_past
from holdfast.core.messages import ChangeOrigin, RetainedChange
from holdfast.retained.api import NO_PROPERTIES, RetainedMessage
from holdfast.storage.api import StoreUnusable
from holdfast_pipeline.errors import PipelineError

T = TypeVar("T")
#: Gives the payload of a message at a time, in milliseconds since the epoch.
Payload = Callable[[int], bytes | str]

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
#: The devices were set up so long ago, and those that are gone have last published so long ago.
_SET_UP, _GONE = 20 * DAY, 40 * DAY
#: The files of a sample in its folder.
CONFIGURATION, FAULTS, DATABASE = "holdfast.toml", "faults.txt", "data/holdfast.db"
_CONFIGURATION = """\
# The broker of this sample. Start it with: twistd -n --pidfile= holdfast --config {file}

[node]
data_dir = "data"

[listeners.default]
endpoint = "tcp:1883:interface=127.0.0.1"

[retainer.history]
enable = true
keep = "infinity"
"""


@frozen
class Fault:
    """A planted fault: the kind of the finding about it, the topic or device that has it, and what is wrong."""

    kind: str
    place: str
    told: str


class Recording:
    """Collects the messages and the faults of one sample. Times are in milliseconds since the epoch.

    The history goes from ``since`` to ``until``; ``set_up`` is the time of messages that devices publish once, and
    ``gone`` that of the last messages of devices that are gone.
    """

    def __init__(self, seed: int, until: int) -> None:
        self.until, self.since, self.set_up, self.gone = until, until - DAY, until - _SET_UP, until - _GONE
        self.chance = Random(seed)
        self.faults: list[Fault] = []
        self._changes: list[RetainedChange] = []

    def publish(
        self, client: str, topic: str, payload: bytes | str, at: int, origin: ChangeOrigin = ChangeOrigin.PUBLISH
    ) -> None:
        """Retain a message of a client."""
        told = payload.encode() if isinstance(payload, str) else payload
        message = RetainedMessage(topic, told, 1, NO_PROPERTIES, client, None, at, None, 0)
        self._changes.append(RetainedChange(topic, 0, at, message, client, origin=origin))

    def repeat(self, client: str, topic: str, payload: Payload, every: int, until: int | None = None) -> None:
        """Retain messages of a client all day, about one in so many milliseconds, the last one before ``until``."""
        for at in self.times(every, until):
            self.publish(client, topic, payload(at), at)

    def times(self, every: int, until: int | None = None) -> Iterator[int]:
        """Give times of the day about so many milliseconds apart, the first one before the history begins."""
        at = self.since - self.chance.randrange(every)
        while at < (self.until if until is None else until):
            yield at
            at += round(every * self.chance.uniform(0.8, 1.2))

    def plant(self, kind: str, place: str, told: str) -> None:
        """Note a fault."""
        self.faults.append(Fault(kind, place, told))

    def pick(self, devices: Sequence[T], count: int) -> list[T]:
        """Return so many devices, each another one, in no order."""
        return self.chance.sample(devices, count)

    def warmth(self, at: int) -> float:
        """Return the temperature of a room in °C at a time of the day: the afternoon is the warmest."""
        return 20.5 - 1.5 * cos((at % DAY / HOUR - 3) * pi / 12) + self.chance.gauss(0, 0.5)

    def one_of(self, *values: str) -> Payload:
        """Return payloads that are one of these values, by chance."""
        return lambda _: self.chance.choice(values)

    def about(self, usual: float, spread: float) -> Payload:
        """Return payloads that are whole numbers about as large as ``usual``."""
        return lambda _: f"{self.chance.gauss(usual, spread):.0f}"

    def changes(self) -> list[RetainedChange]:
        """Return all messages in the order of their times."""
        return sorted(self._changes, key=lambda one: one.changed_at)

    def share(self, topic: str, *published: tuple[str, str]) -> None:
        """Have several clients publish to a topic by turns, each with a payload of its own."""
        for number in range(8):
            for place, (client, payload) in enumerate(published):
                self.publish(client, topic, payload, self.since + (number + 1) * 2 * HOUR + place * 5 * MINUTE)

    def lose_connection(self, client: str, topic: str, gone: str, back: str, at: int, away: int) -> None:
        """Have a client lose its connection for so many milliseconds, as its Will tells."""
        self.publish(client, topic, gone, at, ChangeOrigin.WILL)
        self.publish(client, topic, back, at + away)
        self.plant("lost connection", topic, f"its client was away for {away // HOUR} hours")

    def alternate(self, client: str, topic: str, values: Sequence[str], times: int) -> None:
        """Have a topic change between two values so many times within the last two hours, and plant this fault."""
        for number in range(times):
            at = self.until - 2 * HOUR + number * (2 * HOUR // times) + self.chance.randrange(10 * SECOND)
            self.publish(client, topic, values[number % 2], at)
        self.plant("flapping", topic, f"it changes between {values[0]} and {values[1]} all the time")


@frozen
class Written:
    """A sample in its folder: its numbers of topics and changes, and its faults."""

    folder: str
    config: str
    topics: int
    changes: int
    faults: tuple[Fault, ...]


def write(recording: Recording, folder: Path) -> Written:
    """Write the database, the broker's configuration and the list of faults into a new or empty folder.

    Raises :class:`PipelineError`.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise PipelineError(f"{folder}: exists already; remove it, or name another folder with --out")
        database = folder.absolute() / DATABASE
        database.parent.mkdir(parents=True, mode=0o700)
        changes = recording.changes()
        write_past(f"sqlite:///{database}", changes, recording.since)
        config = folder / CONFIGURATION
        config.write_text(_CONFIGURATION.format(file=config), encoding="utf-8")
        (folder / FAULTS).write_text("".join(f"{line}\n" for line in lines_of(recording.faults)), encoding="utf-8")
    except (OSError, StoreUnusable) as error:
        raise PipelineError(f"{folder}: the sample cannot be written: {error}") from error
    topics = len({one.topic for one in changes})
    return Written(str(folder), str(config), topics, len(changes), tuple(recording.faults))


def lines_of(faults: Iterable[Fault]) -> Iterator[str]:
    """Give two lines for each fault, as ``check`` gives them for a finding: the kind and the place, and what it is."""
    for one in faults:
        yield f"{one.kind}  {one.place}"
        yield f"         {one.told}"


def encoded(**fields: Any) -> str:
    """Return a JSON object."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def cut(payload: Payload) -> Payload:
    """Return payloads whose last characters are missing."""
    return lambda at: payload(at)[:-9]


def iso(at: int) -> str:
    """Return a time as a text: 2026-11-21T10:00:00Z."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
