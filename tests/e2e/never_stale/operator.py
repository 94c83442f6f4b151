"""An operator who retains numbers quietly through a node's API. Clients get them by replays, never live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tests.e2e.never_stale.ledger import Ledger
from tests.e2e.never_stale.plan import Kind
from tests.e2e.never_stale.tool import Tool


class Operator:
    """Owns topics like a publisher, but is no Client. ``answered`` is called when the API has answered."""

    def __init__(self, client_id: str, node: int, tool: Tool, ledger: Ledger, answered: Callable[[], None]) -> None:
        self.client_id = client_id
        self.node = node
        self._tool = tool
        self._ledger = ledger
        self._answered = answered
        self._work: asyncio.Task[None] | None = None

    async def put(self, topics: Sequence[str], rounds: int, qos: int) -> None:
        """Begin to retain ``rounds`` new values of each topic, one after the other."""
        await self.settle("")

        async def work() -> None:
            for _ in range(rounds):
                for topic in topics:
                    made = self._ledger.publish(topic, Kind.SET, qos, "", self.node, False)
                    with self._ledger.quietly(self.node):
                        self._ledger.payloads[topic] = str(made.value).encode()
                        await self._tool.put(topic, str(made.value), qos)
                    self._ledger.accept(made.value, True)
                    self._answered()

        self._work = asyncio.create_task(work())

    async def settle(self, _marker: str) -> None:
        """Wait until everything is stored."""
        if self._work is not None:
            work, self._work = self._work, None
            await work
