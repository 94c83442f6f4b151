"""A small database, and the commands that a rehearsal runs on it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

_CONFIG = """\
[node]
data_dir = "data"

[retainer.history]
enable = true
"""
_ROOMS = [(floor, room) for floor in range(5) for room in range(40)]
#: The retained values of each topic, one after the other: a history needs changes.
_CHANGES = 2
#: Java compiles more code in each round; after some rounds little is left.
_ROUNDS = 4
_OF_A_ROUND = (("tree",), ("shapes",), ("check",), ("archive", "--out", "archive-{}"), ("report", "--out", "{}.html"))
_OPTIONS = ("--config", "sample.toml", "--quiet")


def write_sample(folder: Path) -> None:
    """Write the files that the first commands import. Raises :class:`OSError`."""
    Path(folder, "sample.toml").write_text(_CONFIG)
    for change in range(_CHANGES):
        lines = [
            json.dumps({"topic": topic, "payload": b64encode(payload.encode()).decode(), "qos": 0})
            for topic, payload in _messages(change)
        ]
        Path(folder, f"{change}.ndjson").write_text("\n".join(lines))


def commands_on_sample() -> Iterator[Sequence[str]]:
    """Give the arguments of each command, for the folder of the sample."""
    for change in range(_CHANGES):
        yield "import", f"{change}.ndjson", "--format", "ndjson", "--merge", "replace", *_OPTIONS
    for number in range(_ROUNDS):
        for arguments in _OF_A_ROUND:
            yield *(each.format(number) for each in arguments), *_OPTIONS


def _messages(change: int) -> Iterator[tuple[str, str]]:
    for floor, room in _ROOMS:
        place, value = f"building/floor-{floor}/room-{floor}{room:02}", 40 * floor + room + change
        yield f"{place}/temperature", str(15 + value % 100 / 10)
        yield f"{place}/light/state", json.dumps({"on": value % 3 == 0, "brightness": value})
        yield f"{place}/status", "online" if value % 7 else "offline"
