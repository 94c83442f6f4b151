"""The scenarios, by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.brokers import Broker
from benchmarks.makes import TRANSPORTS
from benchmarks.results import Result
from benchmarks.scenarios import (
    connects,
    fanin,
    fanout,
    fleet,
    growth,
    hostile,
    live,
    memory,
    mixed,
    payloads,
    permissions,
    pingpong,
    replay,
    retained,
    seed,
    since,
    start,
    websocket,
)


@dataclass(frozen=True)
class Scale:
    """The amount of work of each scenario."""

    retained: tuple[int, ...]
    seconds: float
    messages: int = 10**9  #: of each case with live messages at most
    starts: int = 1
    connects: int = 3000
    attack: float = 1.0  #: the size of each attack
    turns: int = 4  #: of brokers that run side by side
    transports: tuple[str, ...] = TRANSPORTS  #: of the devices of a fleet


FULL = Scale((1_000_000,), 3.0)
QUICK = Scale((100_000,), 1.0, attack=0.2)

Run = Callable[[Broker, Result, Scale], None]


@dataclass(frozen=True)
class Scenario:
    """A scenario and the brokers that run it.

    ``nodelay`` is True if mosquitto runs only with `set_tcp_nodelay`: without, its figures would be the same or worse.
    ``alone`` is True if the goals are not ratios, so that peers run it only without Holdfast. ``once`` is True for one
    round only: its figures hardly differ between rounds. ``quick`` is False if a quick run leaves it out, unless it is
    named. ``null`` is True if a server that does almost nothing can run it.
    """

    run: Run
    nodelay: bool = False
    alone: bool = False
    once: bool = False
    quick: bool = True
    null: bool = True


SCENARIOS: dict[str, Scenario] = {
    "fanin": Scenario(fanin.run),  # the scenarios without retained messages come first
    "fanout": Scenario(fanout.run),
    "fleet": Scenario(fleet.run, nodelay=True, null=False),
    "pingpong": Scenario(pingpong.run),
    "mixed": Scenario(mixed.run),
    "retained": Scenario(retained.run),
    "payloads": Scenario(payloads.run, nodelay=True, null=False),
    "connects": Scenario(connects.run, nodelay=True),
    "seed": Scenario(seed.run),
    "replay": Scenario(replay.run),
    "since": Scenario(since.run, null=False),
    "live": Scenario(live.run, nodelay=True),
    "websocket": Scenario(websocket.run, null=False),
    "permissions": Scenario(permissions.run, nodelay=True, alone=True, once=True, null=False),
    "start": Scenario(start.run, nodelay=True, null=False),
    "memory": Scenario(memory.run, nodelay=True, alone=True, once=True, null=False),
    "growth": Scenario(growth.run, nodelay=True, once=True, null=False),
    "hostile": Scenario(hostile.run, nodelay=True, alone=True, once=True, quick=False, null=False),
}
