"""Cycles: clients and processes, faults, healing, quiet, judgement.

A cycle, in seconds: the clients come (1), all is calm (2), faults (7), healing (as long as it takes, at most
:data:`HEALING`), groups and quiet (5). The nodes run on from cycle to cycle; the clients, their topics and their
history are new in each. Everything is chosen by the seed of the cycle, but not the order in which processes do things.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from attrs import asdict, field, frozen

from tests.cluster.bench.broken import environment_of
from tests.cluster.bench.checks import check
from tests.cluster.bench.clients import Scene
from tests.cluster.bench.drivers import Cast, Size
from tests.cluster.bench.faults import Plan, carry_out, choose
from tests.cluster.bench.figures import Figures, crashes, figures_of
from tests.cluster.bench.history import Event, History, Measured, NodeEnded, NodeReady, Phase, Violation, around
from tests.cluster.bench.places import FENCED, Places
from tests.cluster.bench.store import waiting
from tests.cluster.bench.views import View

#: seconds in which all has to be well again after the faults
HEALING = 30.0
#: seconds of quiet after which the last values are compared
QUIET = 5.0
_CALM, _FAULTS, _COMING = 2.0, 7.0, 20.0
_GROUP_MESSAGES = 240


@frozen(kw_only=True)
class Options:
    """What to run. ``keep`` is the folder for histories of failed cycles. Without ``roaming`` Sessions do not move."""

    seed: int = 1
    cycles: int = 3
    bus: str = "postgres"
    nodes: int = 3
    broken: str | None = None
    keep: Path | None = None
    roaming: bool = True
    long: bool = False
    size: Size = field(factory=Size)
    #: whether to end with the first violation
    first: bool = False


class Bench:
    """The processes, and the history of the present cycle."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._began = monotonic()
        self.history = History()
        self.failures: list[str] = []
        self.places = Places(folder, options.nodes, options.bus, environment_of(options.broken), self._of_node)

    def now(self) -> float:
        """Return the seconds since the cycle began."""
        return round(monotonic() - self._began, 4)

    def _of_node(self, kind: type[NodeEnded | NodeReady], node: int, status: int) -> None:
        self.history.append(NodeEnded(self.now(), node, status) if kind is NodeEnded else NodeReady(self.now(), node))

    def _phase(self, name: str) -> None:
        self.history.append(Phase(self.now(), name))

    async def cycle(self, number: int) -> Figures:
        """Run a cycle, and judge it."""
        options = self._options
        self.history, self._began = History(), monotonic()
        random = Random(f"{options.seed} {number}")
        prefix = f"c{options.seed}x{number}"
        ports = {node.number: node.port for node in self.places.nodes.values()}
        scene = Scene(self.history, prefix, ports, random, self.now)
        plans = choose(
            random, list(self.places.nodes), list(self.places.links), list(self.places.nats), options.long
        )  # fmt: skip
        cast = Cast.of(scene, options.size, roaming=options.roaming)
        found: list[Violation] = []
        measuring = asyncio.create_task(self._measure())
        try:
            await self._act(cast, plans, found)
            stored = await asyncio.to_thread(self.places.postgres.read, prefix)
            found += [Violation(0, failure) for failure in (*cast.failures(), *self.failures)]
            view, found = await asyncio.to_thread(self._judge, stored, found)
            figures = await asyncio.to_thread(figures_of, self.history, view, found)
            figures.errors = sum(len(node.errors) for node in self.places.nodes.values())
            if found and options.keep is not None:
                await asyncio.to_thread(self._save, options.keep, prefix, plans, found)
        finally:
            measuring.cancel()
            await cast.leave()
        self.failures.clear()
        for node in self.places.nodes.values():
            node.errors.clear()
        return figures

    async def _act(self, cast: Cast, plans: list[Plan], found: list[Violation]) -> None:
        late = await self.places.ready(_COMING)
        cast.enter()
        who = await cast.settled(_COMING)
        if late or who:
            found.append(Violation(0, f"before any fault, nodes {late} are not ready, and clients wait: {who}"))
        self._phase("calm")
        cast.act()
        await asyncio.sleep(_CALM)
        self._phase("faults")
        faults = asyncio.create_task(carry_out(plans, self.places, self.history.append, self.now))
        await asyncio.gather(faults, asyncio.sleep(_FAULTS))
        await self.places.heal()
        self._phase("healed")
        cast.rest()
        late = await self.places.ready(HEALING)
        who = await cast.settled(HEALING)
        if late or who:
            found.append(
                Violation(0, f"{HEALING:g} s after the faults, nodes {late} are not ready, clients wait: {who}")
            )
        self._phase("groups")
        await cast.feed_groups(_GROUP_MESSAGES)
        who = await cast.settled(HEALING)
        if who:
            found.append(Violation(0, f"without a fault, clients wait: {who}"))
        self._phase("quiet")
        await asyncio.sleep(QUIET)
        self._phase("checked")

    def _judge(self, stored: Any, found: list[Violation]) -> tuple[View, list[Violation]]:
        view = View.of(self.history)
        return view, [*found, *crashes(self.history), *check(view, stored)]

    def _save(self, folder: Path, prefix: str, plans: list[Plan], found: list[Violation]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        head = {"seed": self._options.seed, "faults": [str(plan) for plan in plans], "broken": self._options.broken}
        self.history.save(folder / f"{prefix}.jsonl", [head])
        with (folder / f"{prefix}.txt").open("w") as file:
            file.write(f"{head}\n")
            for violation in found:
                file.write(f"\n{violation}\n")
                for event in around(self.history, violation)[:200]:
                    file.write(f"    {told(event)}\n")
            for node in self.places.nodes.values():
                file.write(f"\nthe last lines of node {node.number}, whose errors are {node.errors}:\n")
                file.writelines(f"    {line}\n" for line in node.lines)

    async def _measure(self) -> None:
        """Take a sample every two seconds. The database may be away."""
        while True:
            memory = {str(node.number): node.memory for node in self.places.nodes.values()}
            with contextlib.suppress(Exception):
                runs, rows = await asyncio.to_thread(self._waiting)
                self.history.append(Measured(self.now(), memory, runs, rows))
            await asyncio.sleep(2)

    def _waiting(self) -> tuple[int, int]:
        with self.places.postgres.connect() as connection:
            return waiting(connection)


def told(event: Event) -> str:
    """Return an event in one line."""
    values = asdict(event)
    at = values.pop("at")
    return f"{at:8.3f} {type(event).__name__} " + " ".join(f"{name}={value}" for name, value in values.items())


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[Bench]:
    """Start all processes, and end them in the end."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server's user has to reach its folder
        bench = Bench(options, folder)

        def unexpected(_: object, context: dict[str, Any]) -> None:
            bench.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

        asyncio.get_running_loop().set_exception_handler(unexpected)
        try:
            await bench.places.start()
            yield bench
        finally:
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                for node in bench.places.nodes.values():
                    with contextlib.suppress(OSError):
                        log = (folder / f"{node.name}.log").read_text()
                        (options.keep / f"{node.name}.log").write_text(log[-(1 << 20) :])
            await bench.places.stop()


async def run(options: Options, say: Callable[[str], None]) -> Figures:
    """Run all cycles, and say a line for each; return all figures."""
    total = Figures()
    async with running(options) as bench:
        for number in range(1, options.cycles + 1):
            begun = monotonic()
            figures = await bench.cycle(number)
            total.add(figures)
            say(f"cycle {number} ({monotonic() - begun:.0f} s): {figures.line()}")
            for violation in figures.violations[:20]:
                say(f"    {violation}")
            if figures.violations and options.first:
                break
    return total


__all__ = ["FENCED", "Bench", "Options", "run", "running"]
