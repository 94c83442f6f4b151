"""Never stale after fresh, never resurrected: real brokers over real sockets, on both makes of database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from tests.e2e.never_stale.plan import Plan, plans
from tests.e2e.never_stale.scene import Node, Scene
from tests.e2e.never_stale.tool import Tool
from tests.postgres import drop, empty_database
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

#: each takes as long as many of those that need no broker
_EXAMPLES = settings.default.max_examples // 4

#: small numbers, so that boundaries of batches and windows are met all the time
_CONFIG = """
node.id = {id}
mqtt.max_inflight = 9
mqtt.max_awaiting_rel = 1000
[retainer]
msg_clear_interval = "{sweep}"
flow_control.batch_read_number = 7
flow_control.batch_deliver_number = 3
"""


def started(directory: Path, number: int, sweep: str, *options: str) -> BrokerProcess:
    """Start a broker in a folder of its own, which sweeps what has expired so often."""
    own = directory / str(number)
    own.mkdir()
    (own / "holdfast.toml").write_text(_CONFIG.format(id=number, sweep=sweep))
    return BrokerProcess(own, "--config", "holdfast.toml", *options).start()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """One broker on SQLite, or two on one Postgres database, for all examples.

    What has expired is swept on SQLite, and found by readers on Postgres.
    """
    directory = tmp_path_factory.mktemp("never-stale")
    brokers: list[BrokerProcess] = []
    url = None
    try:
        if request.param == "sqlite":
            brokers.append(started(directory, 1, "1s"))
        else:
            url = empty_database()
            for number in (1, 2):
                brokers.append(started(directory, number, "1h", "--storage", url))
        yield [Node(broker.port, Tool(broker.directory / "data")) for broker in brokers]
        for broker in brokers:
            assert broker.stop() == (0, "")
            assert "Traceback" not in "\n".join(broker.lines)
    finally:
        for broker in brokers:
            broker.end()
        if url is not None:
            drop(url)


# What goes wrong in a race may go right the next time: shrinking would look for an example that fails, not the reason.
@settings(max_examples=_EXAMPLES, phases=(Phase.explicit, Phase.generate))
@given(plan=plans())
def test_never_stale_after_fresh_never_resurrected(nodes: list[Node], plan: Plan) -> None:
    """Publishers count up, subscribers with all kinds of options join, stall, leave and rejoin, tools clear.

    On one connection no RETAIN=1 value is older than one seen before it, nor than what was known to be retained when
    the connection or a round trip on it began (DUP=1 excepted); live values rise by topic and QoS; what is promised
    comes; and in the end what is retained is the newest, or nothing where it was cleared, by whatever means.
    """
    scene = Scene(nodes, plan)
    try:
        asyncio.run(scene.play())
    except Exception as failure:
        failure.add_note(f"the plan was {plan}")  # also where it goes well the second time
        raise
