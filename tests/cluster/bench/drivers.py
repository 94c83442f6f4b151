"""The clients of a cycle, and what each of them does until all is quiet.

    publisher     stays at its node: counters on topics of its own, and on topics that several set
    subscriber    its Session lasts; it moves to another node every few seconds
    visitor       subscribes, stays for some seconds, goes
    watcher       subscribes with a transient Session, stays as long as it can
    collector     stays connected, and subscribes to one more topic every now and then
    member        of a group, at different nodes
    mortal        has a Will: dies, says goodbye, or comes back
    twin          two clients with one Client Identifier at two nodes

All topics begin with the cycle's prefix: ``own/PUBLISHER/N`` has one publisher, ``shared/N`` several, all with RETAIN 1
and one QoS, ``live/N`` several with RETAIN 0, ``rare/N`` one subscriber, ``group/N`` is for groups, ``will/CLIENT`` for
Wills. No client has two subscriptions that match one topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from attrs import define, field, frozen

from tests.cluster.bench.clients import Client, Scene, WillOf

#: seconds after which the Will of a client that comes back is published
LONG = 60


@frozen
class Size:
    """How many clients of each kind there are, and how many rounds a publisher has in a second."""

    publishers: int = 2  # at each node
    subscribers: int = 4
    visitors: int = 2
    watchers: int = 4
    members: int = 2  # of each group, at each node
    mortals: int = 4
    twins: int = 2
    topics: int = 4
    rounds: float = 12.0


class Publisher(Client):
    """Publishes to topics of its own, and to common ones, with each QoS."""

    def __init__(self, scene: Scene, name: str, node: int, size: Size) -> None:
        super().__init__(scene, name, lambda: node, lasting=True, patience=30.0)
        self._own = [f"{scene.prefix}/own/{name}/{number}" for number in range(size.topics)]
        self._size = size
        self.publishes = False

    async def act(self) -> None:
        """Publish as long as it may."""
        random = self.scene.random
        while True:
            await asyncio.sleep(random.uniform(0.2, 1.8) / self._size.rounds)
            if self.publishes and self.is_connected:
                self._round()

    def _round(self) -> None:
        random, prefix = self.scene.random, self.scene.prefix
        for _ in range(random.randint(1, 3)):
            padding = random.choice((0, 0, 0, 200, 200, 20_000 if random.random() < 0.05 else 0))
            kind, number = random.random(), random.randrange(self._size.topics)
            if kind < 0.55:
                qos, sort = random.randrange(3), random.random()
                clear = sort < 0.08 and qos > 0
                self.publish(random.choice(self._own), qos, retain=sort < 0.5, clear=clear, padding=padding)
            elif kind < 0.7:
                clear = random.random() < 0.15
                self.publish(f"{prefix}/shared/{number}", 1 + number % 2, retain=True, clear=clear)
            elif kind < 0.85:
                self.publish(f"{prefix}/live/{number}", random.randrange(3), padding=padding)
            else:
                self.publish(f"{prefix}/group/{number}", random.randint(1, 2))


class Roamer(Client):
    """Moves to another node now and then, until it has to ``rest``."""

    def __init__(
        self, scene: Scene, name: str, filters: dict[str, int], choose: Callable[[], int], *, lasting: bool,
        stay: tuple[float, float],
    ) -> None:  # fmt: skip
        super().__init__(scene, name, choose, lasting=lasting, filters=filters)
        self._stay = stay

    async def act(self) -> None:
        """End the connection now and then."""
        random = self.scene.random
        while True:
            await asyncio.sleep(random.uniform(*self._stay))
            if self.rests or not self.is_connected:
                continue
            if random.random() < 0.5:
                self.abort()
            else:
                self.disconnect()


class Collector(Client):
    """Subscribes to topics that nobody else knows.

    While it asks for one, somebody sets a retained message there: the replay has it, or it comes live. When SUBACK has
    come, somebody publishes at once: it has to arrive.
    """

    def __init__(self, scene: Scene, name: str, node: int, publishers: Sequence[Publisher]) -> None:
        super().__init__(scene, name, lambda: node, lasting=False, filters={})
        self._publishers = publishers
        self._topic = f"{scene.prefix}/rare/{name}"

    async def act(self) -> None:
        """Subscribe to one more topic every now and then."""
        random = self.scene.random
        for number in range(200):
            await asyncio.sleep(random.uniform(0.05, 0.4))
            if self.rests:
                return
            if self.is_connected:
                topic = f"{self._topic}{number}"
                publisher = random.choice(self._publishers)
                if random.random() < 0.5:
                    publisher.publish(f"{topic}/kept", 1, retain=True)
                self.subscribe(f"{topic}/+", random.randint(1, 2))
                if random.random() < 0.5:
                    publisher.publish(f"{topic}/kept", 1, retain=True)

    def granted(self, topic_filter: str) -> None:
        """Let messages be published at all nodes."""
        if not self.rests:
            for publisher in self._publishers:
                publisher.publish(topic_filter.replace("+", "live"), 1)


class Mortal(Client):
    """Has a Will with each connection. ``habit``: "dies", "says goodbye", "comes back" or "comes back in time".

    One that comes back tells on the topic of its Will that it is there.
    """

    def __init__(self, scene: Scene, name: str, choose: Callable[[], int], habit: str) -> None:
        super().__init__(scene, name, choose, lasting=True)
        self.habit = habit
        self.stays_away = habit in ("dies", "says goodbye")
        self._delay = LONG if habit == "comes back in time" else 0
        self._topic = f"{scene.prefix}/will/{name}"
        self.is_over = False

    def will(self) -> WillOf:
        """Return a new Will."""
        return WillOf(self.scene.next_number(), self._topic, self._delay)

    def arrived(self) -> None:
        """Tell that the client is there, if it comes back."""
        if not self.stays_away:
            self.publish(self._topic, 1, retain=True)

    async def act(self) -> None:
        """Live for a while, and then do what its habit is."""
        random = self.scene.random
        while not self.is_over:
            await asyncio.sleep(random.uniform(1.0, 4.0))
            if self.rests or not self.is_connected:
                continue
            if self.habit == "says goodbye":
                self.disconnect()
            else:
                self.abort()
            self.is_over = self.stays_away


class Twin(Client):
    """One of two clients with one Client Identifier. Each ends the connection of the other one."""

    def __init__(self, scene: Scene, name: str, node: int) -> None:
        super().__init__(scene, name, lambda: node, lasting=False)
        self.stays_away = True

    async def act(self) -> None:
        """Come back now and then, when the other one has driven it away. :meth:`run` is called here."""
        random = self.scene.random
        while not self.rests:
            await self.run()
            await asyncio.sleep(random.uniform(0.3, 2.0))


@define(eq=False)
class Cast:
    """All clients of a cycle."""

    scene: Scene
    publishers: list[Publisher] = field(factory=list)
    roamers: list[Roamer] = field(factory=list)
    members: list[Client] = field(factory=list)
    watchers: list[Client] = field(factory=list)
    collectors: list[Collector] = field(factory=list)
    mortals: list[Mortal] = field(factory=list)
    twins: list[Twin] = field(factory=list)
    _tasks: list[asyncio.Task[None]] = field(factory=list)
    _acts: bool = False

    @classmethod
    def of(cls, scene: Scene, size: Size, *, roaming: bool) -> Cast:
        """Make the clients. Without ``roaming`` each stored Session stays at its node."""
        cast, nodes, random, prefix = cls(scene), sorted(scene.ports), scene.random, scene.prefix

        def chooser(lasting: bool) -> Callable[[], int]:
            home = random.choice(nodes)
            return (lambda: random.choice(nodes)) if roaming or not lasting else (lambda: home)

        def filters(qualities: Sequence[int]) -> dict[str, int]:
            made = {f"{prefix}/{branch}/#": random.choice(qualities) for branch in ("own", "shared", "live")}
            return made | {f"{prefix}/will/#": max(qualities)}

        for node in nodes:
            for number in range(size.publishers):
                cast.publishers.append(Publisher(scene, f"p{node}{number}", node, size))
            for number in range(size.members):
                for group, lasting in (("lasting", True), ("passing", False)):
                    wanted = {f"$share/{prefix}-{group}/{prefix}/group/#": 2}
                    name = f"{group}{node}{number}"
                    cast.members.append(
                        Client(scene, name, lambda node=node: node, lasting=lasting, filters=wanted)  # type: ignore[misc]
                    )
        for number in range(size.subscribers):
            qualities = (2,) if number % 2 == 0 else (1, 2)
            cast.roamers.append(
                Roamer(scene, f"s{number}", filters(qualities), chooser(True), lasting=True, stay=(1.0, 4.0))
            )
        for number in range(size.visitors):
            cast.roamers.append(
                Roamer(scene, f"v{number}", filters((0, 1, 2)), chooser(False), lasting=False, stay=(0.5, 3.0))
            )
        for number in range(size.watchers):
            cast.watchers.append(Client(scene, f"w{number}", chooser(False), lasting=False, filters=filters((0, 1, 2))))
        for node in nodes:
            cast.collectors.append(Collector(scene, f"c{node}", node, cast.publishers))
        habits = ("dies", "says goodbye", "comes back", "comes back in time")
        cast.mortals += [
            Mortal(scene, f"m{number}", chooser(True), habits[number % len(habits)]) for number in range(size.mortals)
        ]
        for number in range(size.twins if roaming else 0):
            for node in random.sample(nodes, min(2, len(nodes))):
                cast.twins.append(Twin(scene, f"t{number}", node))
        return cast

    @property
    def clients(self) -> list[Client]:
        """All clients that are connected as long as they can."""
        return [*self.publishers, *self.roamers, *self.members, *self.watchers, *self.collectors]

    def enter(self) -> None:
        """Let everybody but the twins and those who have Wills connect."""
        self._start(*(client.run() for client in self.clients))

    def act(self) -> None:
        """Let everybody do what it does."""
        self._acts = True
        for publisher in self.publishers:
            publisher.publishes = True
        self._start(
            *(
                client.act()
                for client in (*self.publishers, *self.roamers, *self.collectors, *self.mortals, *self.twins)
            )
        )
        self._start(*(client.run() for client in self.mortals))

    def rest(self) -> None:
        """Let everybody stay where it is, and publish nothing new."""
        for publisher in self.publishers:
            publisher.publishes = False
        for client in (*self.roamers, *self.collectors, *self.mortals, *self.twins):
            client.rests = True

    def unsettled(self) -> list[str]:
        """Return who is not connected yet, or waits for an answer."""
        mortals = [client for client in self.mortals if self._acts and not client.stays_away]
        return [client.client_id for client in (*self.clients, *mortals) if not client.is_settled]

    async def settled(self, seconds: float) -> list[str]:
        """Wait until everybody is connected and has all its answers; return who is late."""
        deadline = self.scene.now() + seconds
        while (late := self.unsettled()) and self.scene.now() < deadline:
            await asyncio.sleep(0.05)
        return late

    async def feed_groups(self, messages: int) -> None:
        """Publish messages for groups, by all publishers in turn."""
        for number in range(messages):
            publisher = self.publishers[number % len(self.publishers)]
            for _ in range(200):
                if publisher.publish(f"{self.scene.prefix}/group/{number % 4}", 1 + number % 2):
                    break
                await asyncio.sleep(0.02)

    async def leave(self) -> None:
        """End all Sessions and all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in (*self.clients, *self.mortals, *self.twins):
            client.disconnect(over=True)
        await asyncio.sleep(0.2)

    def failures(self) -> list[str]:
        """Return why tasks have ended that should not have."""
        return [
            f"{type(task.exception()).__name__}: {task.exception()}"
            for task in self._tasks
            if task.done() and not task.cancelled() and task.exception() is not None
        ]

    def _start(self, *runs: Coroutine[Any, Any, None]) -> None:
        self._tasks += map(asyncio.create_task, runs)
