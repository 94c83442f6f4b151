"""What goes wrong in a cycle: faults that a seed chooses, one after the other or at the same time, and their times.

    hold, half    a link lets nothing through, in both directions or in one
    reset         its connections are reset
    late          everything on it is late
    stop          a process stands still (SIGSTOP), and goes on
    kill          kill -9, and a new start after a while; of one node, of all, of a NATS server
    outage        Postgres is stopped, and started again
    crash         Postgres ends without writing anything, and is started again

Each ends by itself, and all of them before the cycle heals.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from random import Random

from attrs import frozen

from tests.cluster.bench.history import Event, Fault
from tests.cluster.bench.places import LEASE, Places

#: the longest time in which a fault may last, in seconds, but for a stop with ``long`` ones
LONGEST = 7.0
#: seconds without the database after which a member may lose its lease
_HARMLESS = LEASE - 2.5

_OF_LINKS = ("hold", "half", "reset", "late")


@frozen
class Plan:
    """One fault. ``target`` is a link, a node's number, a NATS server's name, "all nodes" or "postgres"."""

    name: str
    target: str
    after: float
    lasts: float
    to_server: bool = True

    @property
    def node(self) -> int:
        """The node that it concerns, 0 for all."""
        number = self.target.removeprefix("node").split("-")[0]
        return int(number) if number.isdigit() else 0

    @property
    def fences(self) -> bool:
        """Whether a node may have to end for it."""
        if "nats" in self.target:
            return False
        return self.name in ("kill", "outage", "crash") or (self.name != "reset" and self.lasts > _HARMLESS)

    def __str__(self) -> str:
        direction = "" if self.name != "half" else " to the server" if self.to_server else " to the client"
        return f"{self.name} {self.target}{direction} {self.after:.1f}+{self.lasts:.1f}"


def choose(random: Random, nodes: Sequence[int], links: Sequence[str], nats: Sequence[str], long: bool) -> list[Plan]:
    """Choose the faults of a cycle. With ``long``, a process may stand still for 20 seconds."""
    plans: list[Plan] = []
    begin = 0.5
    for _ in range(random.choices((1, 2, 3), (3, 4, 2))[0]):
        plan = _one(random, nodes, links, nats, begin, long)
        plans.append(plan)
        together = random.random() < 0.3
        begin += random.uniform(0.2, 1.5) if together else min(plan.lasts, 3.0) + random.uniform(0.2, 1.0)
    return plans


def _one(
    random: Random, nodes: Sequence[int], links: Sequence[str], nats: Sequence[str], after: float, long: bool
) -> Plan:
    lasts = random.choice((random.uniform(0.2, 2.0), random.uniform(2.0, LONGEST)))
    kind = random.choices(("link", "stop", "kill", "all", "outage"), (9, 4, 4, 1, 1.5))[0]
    if kind == "link":
        link = random.choice(links)
        return Plan(random.choice(_OF_LINKS), link, after, lasts, random.random() < 0.5)
    if kind == "stop":
        if long and random.random() < 0.2:
            lasts = random.uniform(LONGEST, 20.0)
        return Plan("stop", random.choice([*(f"node{node}" for node in nodes), *nats]), after, lasts)
    if kind == "kill":
        return Plan("kill", random.choice([*(f"node{node}" for node in nodes), *nats]), after, min(lasts, 3.0))
    if kind == "all":
        return Plan("kill", "all nodes", after, 0.3)
    return Plan(random.choice(("outage", "crash")), "postgres", after, min(lasts, 2.0))


async def carry_out(
    plans: Sequence[Plan], places: Places, note: Callable[[Event], None], now: Callable[[], float]
) -> None:
    """Let all faults begin and end at their times."""
    begun = now()

    async def one(plan: Plan) -> None:
        await asyncio.sleep(max(0.0, plan.after - (now() - begun)))
        note(Fault(now(), str(plan), plan.node, True, plan.fences))
        try:
            await _carry_out(plan, places)
        finally:
            note(Fault(now(), str(plan), plan.node, False, plan.fences))

    await asyncio.gather(*map(one, plans))


async def _carry_out(plan: Plan, places: Places) -> None:
    if plan.name in _OF_LINKS:
        await _disturb(plan, places)
    elif plan.name == "outage":
        await asyncio.to_thread(places.postgres.restart)
    elif plan.name == "crash":
        await asyncio.to_thread(places.postgres.crash)
    elif plan.target == "all nodes":
        for node in places.nodes.values():
            node.signal(signal.SIGKILL)
        await asyncio.sleep(plan.lasts)
    else:
        process = places.nats.get(plan.target) or places.nodes[plan.node]
        if plan.name == "stop":
            process.signal(signal.SIGSTOP)
            await asyncio.sleep(plan.lasts)
            process.signal(signal.SIGCONT)
            return
        if plan.node:
            places.nodes[plan.node].down = True
        process.signal(signal.SIGKILL)
        await asyncio.sleep(plan.lasts)
        if plan.node:
            places.nodes[plan.node].down = False


async def _disturb(plan: Plan, places: Places) -> None:
    link = places.links[plan.target]
    if plan.name == "reset":
        link.reset()
        return
    if plan.name == "late":
        link.delay(0.03)
    elif plan.name == "half":
        link.hold(to_server=plan.to_server, to_client=not plan.to_server)
    else:
        link.hold()
    await asyncio.sleep(plan.lasts)
    link.heal()
