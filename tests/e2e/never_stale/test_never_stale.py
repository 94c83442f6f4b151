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

#: a quarter of the number for tests without a broker: an example takes half a second
_EXAMPLES = settings().max_examples // 4

#: small numbers, so that an example reaches many limits of batches and windows
_CONFIG = """
node.id = {id}
mqtt.max_inflight = 9
mqtt.max_awaiting_rel = 1000
[retainer]
msg_clear_interval = "{sweep}"
announce_expiry = true
history.enable = true
flow_control.batch_read_number = 7
flow_control.batch_deliver_number = 3
[[retainer.policies]]
filter = "+/+/2/#"
write_interval = "200ms"
"""


def started(directory: Path, number: int, sweep: str, *options: str) -> BrokerProcess:
    """Start a broker in a folder of its own, with this interval between sweeps of expired messages."""
    own = directory / str(number)
    own.mkdir()
    cluster = 'cluster.name = "never-stale"\n' if options else ""
    (own / "holdfast.toml").write_text(cluster + _CONFIG.format(id=number, sweep=sweep))
    return BrokerProcess(own, "--config", "holdfast.toml", *options).start()


# Half a minute: one node on each database is the quick relative.
_TWO_NODES = pytest.param("two nodes", marks=pytest.mark.nightly)


@pytest.fixture(scope="module", params=["sqlite", "postgresql", _TWO_NODES])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """One broker on SQLite or Postgres, or two on one Postgres database, for all examples.

    On SQLite the sweep removes expired messages. On Postgres the readers find them.
    """
    directory = tmp_path_factory.mktemp("never-stale")
    brokers: list[BrokerProcess] = []
    url = None
    try:
        if request.param == "sqlite":
            brokers.append(started(directory, 1, "1s"))
        else:
            url = empty_database()
            for number in (1, 2) if request.param == "two nodes" else (1,):
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


@pytest.fixture(scope="module")
def judged() -> Iterator[list[int]]:
    """The number of judged messages of each example; pytest shows it with ``-s``."""
    counts: list[int] = []
    yield counts
    print(f"\n{len(counts)} examples, {sum(counts)} messages judged")


# A race may fail once and pass the next time: shrinking would find examples that fail again, not the reason.
@settings(max_examples=_EXAMPLES, phases=(Phase.explicit, Phase.generate))
@given(plan=plans())
def test_never_stale_after_fresh_never_resurrected(nodes: list[Node], judged: list[int], plan: Plan) -> None:
    """Publishers count up, subscribers with all kinds of options join, stall, leave and rejoin, tools clear.

    On one connection, no value with RETAIN 1 is older than an earlier received value, or than the values known to be
    retained when the connection or a round trip on it began (except with DUP 1). Live values rise by topic and QoS. All
    promised messages come. In the end, each topic retains its newest message, or none after any kind of clear.
    """
    scene = Scene(nodes, plan)
    try:
        asyncio.run(scene.play())
    except Exception as failure:
        failure.add_note(f"the plan was {plan}")  # even if it passes the second time
        raise
    judged.append(scene.messages)
