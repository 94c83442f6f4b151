"""Durability "async": the acknowledged messages that kill -9 loses."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path

from attrs import define, field

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.faults.results import Result
from tests.faults.storm import retained
from tests.processes import PATIENCE, BrokerProcess

INTERVAL = 0.25
#: the loss may look so much longer to a client, which gets its acknowledgements a little late (seconds)
_DELAY = 0.15


@define(eq=False)
class Counter:
    """Publishes increasing numbers to one topic with QoS 1 and RETAIN 1; notes the time of each acknowledgement."""

    acknowledged: list[float] = field(factory=list)
    begun: threading.Event = field(factory=threading.Event)

    def run(self, port: int) -> None:
        """Publish until the connection is closed."""
        with contextlib.suppress(OSError):
            client = RawClient(port, "counter")
            packets = client.packets()
            while True:
                number = len(self.acknowledged) + 1
                client.send(p.Publish("count", b"%d" % number, 1, True, False, number % 60_000 + 1))
                if next(packets, None) is None:
                    return
                self.acknowledged.append(time.monotonic())
                self.begun.set()


def window(directory: Path, store: str, options: tuple[str, ...], kills: int, measured: bool = True) -> Result:
    """Kill a broker ``kills`` times; with ``measured``, no loss may be longer than the configured interval."""
    result = Result("kill -9, durability async", store)
    configuration = directory / "async.toml"
    configuration.write_text(
        f'[storage]\ndurability = "async"\nflush_interval = "{INTERVAL * 1000:.0f}ms"\n[mqtt]\nmax_inflight = 10\n'
    )
    chance = random.Random(5)
    broker = BrokerProcess(directory, "--config", str(configuration), *options)
    longest, lost, all_acknowledged = 0.0, 0, 0
    try:
        for _ in range(kills):
            broker.start()
            counter = Counter()
            thread = threading.Thread(target=counter.run, args=(broker.port,), daemon=True)
            thread.start()
            result.expect(counter.begun.wait(PATIENCE), "no message is acknowledged")
            time.sleep(2 * INTERVAL + chance.uniform(0, INTERVAL))
            broker.kill()
            thread.join(PATIENCE)
            result.tried += 1
            broker.start()
            kept = retained(broker.port).get("count", 0)
            broker.kill()
            times = counter.acknowledged
            all_acknowledged += len(times)
            # The last stored message may lack its acknowledgement. All messages before the last stored one are stored.
            result.expect(0 < kept <= len(times) + 1, f"{kept} is retained, but {len(times)} were acknowledged")
            if kept < len(times):
                lost += len(times) - kept
                longest = max(longest, times[-1] - times[kept])
    finally:
        broker.end()
    if measured:
        result.expect(longest <= INTERVAL + _DELAY, f"{longest:.3f} s were lost, but {INTERVAL} s are configured")
    result.figures = {
        "acknowledged": all_acknowledged,
        "lost": lost,
        "window": f"{longest * 1000:.0f} ms",
        "configured": f"{INTERVAL * 1000:.0f} ms",
    }
    return result
