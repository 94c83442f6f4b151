"""Carries out a plan with running brokers, and checks the final state."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.wire import packets as p
from tests.e2e.never_stale import plan as steps
from tests.e2e.never_stale.inquirer import Inquirer
from tests.e2e.never_stale.ledger import Ledger
from tests.e2e.never_stale.operator import Operator
from tests.e2e.never_stale.plan import Habit, Kind, Manner, Plan
from tests.e2e.never_stale.publisher import Publisher
from tests.e2e.never_stale.subscriber import Conduct, Subscriber
from tests.e2e.never_stale.tool import Tool
from tests.e2e.never_stale.witness import Violation
from tests.processes import PATIENCE

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen

#: seconds that any step may take on a slow machine
#: seconds between two checks for events without a notice: the end of replays, and expiry
_PAUSE = 0.02

_numbers = itertools.count(1)


@frozen
class Node:
    """A running broker: its port, and its tool."""

    port: int
    tool: Tool


class Scene:
    """One example, below a prefix of its own."""

    def __init__(self, nodes: Sequence[Node], plan: Plan) -> None:
        self.ledger = Ledger.of_nodes(len(nodes))
        self._nodes = nodes
        self._plan = plan
        self._prefix = f"never-stale/{next(_numbers)}/"
        self._conduct = Conduct()
        self._cleaning: asyncio.Task[None] | None = None
        self._topics = [f"{self._prefix}{n % steps.BRANCHES}/{n:03}" for n in range(plan.topics)]
        self._publishers = [
            Publisher(f"{self._prefix}p{n}", self._prefix, version, n % len(nodes), self._port(n), self.ledger,
                      self._conduct)
            for n, version in enumerate(plan.versions)
        ]  # fmt: skip
        self._subscribers = [
            Subscriber(f"{self._prefix}s{n}", self._prefix, habit, n % len(nodes), self._port(n), self.ledger,
                       self._conduct)
            for n, habit in enumerate(plan.habits)
        ]  # fmt: skip
        self._operators = [
            Operator(f"{self._prefix}o{number}", number, node.tool, self.ledger, self._probe)
            for number, node in enumerate(nodes)
        ]
        self._inquirers = [
            Inquirer(f"{self._prefix}i{number}", number, node.port, self.ledger, self._conduct)
            for number, node in enumerate(nodes)
        ]
        self._owners: dict[str, Publisher | Operator] = {
            topic: self._publishers[n % steps.PUBLISHERS] for n, topic in enumerate(self._topics)
        }

    def _port(self, number: int) -> int:
        return self._nodes[number % len(self._nodes)].port

    @property
    def messages(self) -> int:
        """The number of judged messages."""
        return sum(client.messages for client in (*self._publishers, *self._subscribers))

    async def play(self) -> None:
        """Carry the plan out, wait until all messages have come, and check. Raises the first violation."""
        async with asyncio.timeout(4 * PATIENCE):
            try:
                await self._begin()
                for step in self._plan.steps:
                    await self._carry_out(step)
                    self._check()
                await self._become_quiet()
                await self._check_what_is_retained()
            finally:
                await self._end()

    async def _begin(self) -> None:
        for publisher in self._publishers:
            await publisher.join(True)
            if publisher.habit.version == 5:
                publisher.subscribe("#", 2, 0)
        for topic in self._topics:
            owner = self._owners[topic]
            assert isinstance(owner, Publisher)
            await owner.publish(topic, Kind.SET, 1, self._plan.padding)
        for subscriber in self._subscribers:
            await subscriber.join(True)

    async def _carry_out(self, step: steps.Step) -> None:
        match step:
            case steps.Burst():
                await self._publish(step)
            case steps.HandOver():
                await self._hand_over(step.first, step.count, self._publishers[step.publisher])
            case steps.Put():
                operator = self._operators[step.node % len(self._nodes)]
                await operator.put(await self._hand_over(step.first, step.count, operator), step.rounds, step.qos)
            case steps.Settle():
                await self._settle(self._publishers[step.publisher])
            case steps.Clean():
                await self._clean(step)
            case steps.Ask():
                await self._inquirers[step.node % len(self._nodes)].ask(self._prefix + step.filter)
            case steps.LookBack():
                await self._inquirers[step.node % len(self._nodes)].look_back(self._prefix + step.filter)
            case steps.Join():
                await self._subscribers[step.subscriber].join(step.clean)
            case steps.Leave():
                self._subscribers[step.subscriber].leave(step.goodbye)
            case steps.Subscribe():
                subscriber = self._subscribers[step.subscriber]
                subscriber.subscribe(step.filter, step.qos, step.retain_handling)
                if step.manner is Manner.HOLDING:
                    subscriber.hold()
                elif step.manner is Manner.STALLED:
                    subscriber.stall()
            case steps.Unsubscribe():
                self._subscribers[step.subscriber].unsubscribe(step.filter)
            case steps.GoOn():
                self._subscribers[step.subscriber].go_on()
            case steps.RoundTrips():
                for _ in range(step.count):
                    await self._round_trip(self._subscribers[step.subscriber])
        await asyncio.sleep(0)  # lets the links read received packets

    async def _publish(self, burst: steps.Burst) -> None:
        publisher = self._publishers[burst.publisher]
        kind = burst.kind
        if kind is Kind.EXPIRING and publisher.habit.version < 5:
            kind = Kind.SET
        own = [topic for topic in self._topics if self._owners[topic] is publisher]
        for _ in range(burst.rounds):
            for number in range(min(burst.count, len(own))):
                topic = own[(burst.first + number) % len(own)]
                await publisher.publish(topic, kind, burst.qos, condition=burst.condition)

    async def _hand_over(self, first: int, count: int, to: Publisher | Operator) -> Sequence[str]:
        """Give topics to another owner once all their messages are stored; return the topics."""
        topics = [self._topics[(first + n) % len(self._topics)] for n in range(min(count, len(self._topics)))]
        for owner in {self._owners[topic].client_id: self._owners[topic] for topic in topics}.values():
            await self._settle(owner)
        await self._write_delayed({self.ledger.newest[topic].node for topic in topics} - {to.node})
        for topic in topics:
            self._owners[topic] = to
        return topics

    async def _write_delayed(self, nodes: set[int]) -> None:
        """Let nodes write their delayed messages: which change of two nodes is newer is known once both are stored."""
        for node in nodes:
            await self._nodes[node].tool.look(f"{self._prefix}{steps.DELAYED_BRANCH}/#")
            self.ledger.written(node)

    async def _settle(self, publisher: Publisher | Operator) -> None:
        await publisher.settle(f"{publisher.client_id}/marker")
        self._probe()

    async def _settle_all(self) -> None:
        for operator in self._operators:
            await self._settle(operator)
        for publisher in self._publishers:
            await self._settle(publisher)

    async def _clean(self, step: steps.Clean) -> None:
        await self._cleaned()
        if not step.racing:
            await self._settle_all()
        for publisher in self._publishers:  # else nobody knows whether their conditions hold
            await publisher.decided()
        node = step.node % len(self._nodes)
        self.ledger.clean_begins(self._prefix + step.filter)

        async def clean() -> None:
            with self.ledger.quietly(node):
                await self._nodes[node].tool.clean(self._prefix + step.filter)
            self.ledger.clean_ended(node)

        self._cleaning = asyncio.create_task(clean())
        if not step.racing:
            await self._cleaned()

    async def _cleaned(self) -> None:
        """Wait for the tool."""
        if self._cleaning is not None:
            cleaning, self._cleaning = self._cleaning, None
            await cleaning
            self._probe()

    def _probe(self) -> None:
        for client in (*self._publishers, *self._subscribers):
            client.probe()

    async def _round_trip(self, client: Subscriber) -> None:
        answered = asyncio.Event()

        def answer() -> None:
            answered.set()
            self._conduct.changed.set()

        if client.ping(answer):
            await self._until(answered.is_set, f"no PINGRESP for {client.client_id}")

    async def _become_quiet(self) -> None:
        """Let all Clients read, acknowledge and reconnect; wait for promised and for unexpected messages."""
        await self._cleaned()
        await self._settle_all()
        for subscriber in self._subscribers:
            if subscriber.link is None and subscriber.kept:
                await subscriber.join(False)
            subscriber.go_on()
        clients = (*self._publishers, *self._subscribers)
        for client in clients:
            await self._until(client.has_everything, "never came", client)
        for inquirer in self._inquirers:
            await self._until(inquirer.has_everything, f"no answer for {inquirer}")
        for node in self._nodes:
            while await node.tool.replays():
                await asyncio.sleep(_PAUSE)
        before = -1
        while before != self.messages:
            before = self.messages
            for client in clients:
                await self._round_trip(client)
        self._check()

    async def _check_what_is_retained(self) -> None:
        """Check on every node that new subscribers get exactly the retained messages, before and after expiry."""
        expiring = {topic for topic, made in self.ledger.newest.items() if made.kind is Kind.EXPIRING}
        owner = self._publishers[0]
        end = f"{self._prefix}~"
        await owner.publish(end, Kind.SET, 1)
        await self._settle(owner)
        if len(self._nodes) > 1:  # a node writes its delayed messages before a replay; the others read them afterwards
            for number, node in enumerate(self._nodes):
                await self._retained(number, node, end)
        for number, node in enumerate(self._nodes):
            found = await self._retained(number, node, end)
            async with asyncio.timeout(PATIENCE):
                while expiring & found.keys():
                    await asyncio.sleep(_PAUSE)
                    found = await self._retained(number, node, end)
            wrong = [
                f"{topic}: retained {found.get(topic)}, allowed {self.ledger.outcomes(topic)}, {made}"
                for topic, made in self.ledger.newest.items()
                if found.get(topic) not in self.ledger.outcomes(topic)
            ]
            if wrong or not found.keys() <= self.ledger.newest.keys():
                raise Violation(f"node {number} has something else retained:\n" + "\n".join(wrong))

    async def _retained(self, number: int, node: Node, end: str) -> dict[str, int]:
        """Return the retained value of every topic, as a new subscriber gets it."""
        habit = Habit(4 + number % 2, False, 65_535, 1 << 18, False, False)
        found: dict[str, int] = {}
        replayed: set[str] = set()  # else a message is a correction

        class Reader(Subscriber):
            def received(self, packet: p.Publish, value: int) -> None:
                if not packet.payload:
                    found.pop(packet.topic, None)  # it has expired
                elif packet.topic in replayed and packet.retain:
                    self._conduct.complain(Violation(f"{packet.topic} was replayed twice"))
                else:
                    found[packet.topic] = value
                    if packet.retain:
                        replayed.add(packet.topic)

        reader = Reader(f"{self._prefix}reader", self._prefix, habit, number, node.port, self.ledger, self._conduct)
        await reader.join(True)
        reader.subscribe("#", 0, 0)
        await self._until(lambda: end in found, "a replay never ended")
        reader.leave(True)
        return found

    async def _end(self) -> None:
        """Remove all connections, Sessions and retained messages."""
        if self._cleaning is not None:
            with contextlib.suppress(Exception):  # the example has failed already
                await self._cleaning
        for operator in self._operators:
            with contextlib.suppress(Exception):  # the example has failed already
                await operator.settle("")
        for subscriber in self._subscribers:
            if subscriber.kept and not self._conduct.violations:
                await subscriber.join(True)
        for client in (*self._publishers, *self._subscribers):
            client.leave(True)
        for inquirer in self._inquirers:
            inquirer.leave()
        await self._nodes[0].tool.clean(self._prefix + "#")

    async def _until(self, holds: Callable[[], bool], otherwise: str, client: Subscriber | None = None) -> None:
        """Wait until a condition is true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    self._conduct.changed.clear()
                    await self._conduct.changed.wait()
                    self._check()
        except TimeoutError:
            details = "" if client is None else f" to {client.client_id}: {self._explained(client)}"
            raise Violation(otherwise + details) from None

    def _explained(self, client: Subscriber) -> str:
        topics = list(client.missing())
        if not topics:
            return f"markers of {client.unmarked()}"
        return "\n".join(f"{self.ledger.newest[topic]}, sent {client.witness.log.get(topic)}" for topic in topics[:5])

    def _check(self) -> None:
        if self._conduct.violations:
            raise self._conduct.violations[0]
