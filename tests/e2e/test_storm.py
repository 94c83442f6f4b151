"""All clients reconnect at once: each is admitted in the end, and no acknowledged message is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

import pytest

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.e2e.swarm import Swarm
from tests.processes import BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

MEMBERS = 500


async def storm(broker: BrokerProcess, port: int, killed: bool) -> None:
    """Cut off all members while messages for them are published. All must resume their Sessions."""
    async with Swarm(port, MEMBERS) as swarm:
        await swarm.until(swarm.all_online)
        away = swarm.members[::2]
        for member in away:
            member.vanish(come_back=False)  # half of them have a queue before the others are cut off
        publishing = asyncio.create_task(swarm.publish(rounds=4))
        await swarm.until(lambda: swarm.acknowledgements > MEMBERS)
        if killed:
            broker.kill()
            await publishing
        for member in swarm.members:
            member.vanish(come_back=True)
            member.return_()
        if killed:
            await asyncio.to_thread(broker.start)
        await asyncio.gather(publishing, swarm.publish(rounds=1), swarm.until(swarm.all_online))
        await swarm.until(swarm.nothing_missing)
        assert swarm.acknowledgements >= 2 * MEMBERS
        assert all(member.resumed for member in swarm.members)


@pytest.mark.parametrize("killed", [False, True], ids=["dropped", "killed"])
def test_500_clients_come_back_at_once(broker_in: Callable[..., BrokerProcess], killed: bool) -> None:
    """They come back after a loss of their Network Connections, or after kill -9, on the same port and data.

    All Sessions are resumed, and all messages acknowledged before, during and after the storm arrive.
    """
    port = lasting_port()
    broker = broker_in("--listen", f"tcp:{port}:interface=127.0.0.1", listen=False).start()
    asyncio.run(storm(broker, port, killed))
    assert broker.stop() == (0, "")
    assert "Traceback" not in "\n".join(broker.lines)


def test_a_burst_arrives_in_full_although_its_client_leaves_at_once(broker: BrokerProcess) -> None:
    """The broker acts on a burst in parts. The end of the connection comes after the last one, and so no Will."""
    subscriber = RawClient(broker.port, "subscriber")
    subscriber.send(p.Subscribe(1, (p.SubscriptionRequest("burst/#"),)))
    packets = subscriber.packets()
    assert isinstance(next(packets), p.Suback)
    publisher = RawClient(broker.port, "publisher", will=p.Will("burst/will", b""))
    publisher.send(*(p.Publish(f"burst/{number}", b"") for number in range(5000)), p.Disconnect())
    publisher.close()
    topics = [packet.topic for packet in islice(packets, 5000) if isinstance(packet, p.Publish)]
    assert topics == [f"burst/{number}" for number in range(5000)]
    last = RawClient(broker.port)
    last.send(p.Publish("burst/last", b""))
    packet = next(packets)
    assert isinstance(packet, p.Publish)
    assert packet.topic == "burst/last"
