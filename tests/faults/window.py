"""Durability "async": what kill -9 costs of what was acknowledged."""

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
#: how much longer a window may look to a client that is not told at once (seconds)
_DELAY = 0.15


@define(eq=False)
class Counter:
    """Retains one number after the other in one topic with QoS 1; notes when each was acknowledged."""

    acknowledged: list[float] = field(factory=list)
    begun: threading.Event = field(factory=threading.Event)

    def run(self, port: int) -> None:
        """Count until the broker is gone."""
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
    """Kill a broker so many times; where time counts (``measured``), no loss may be longer than configured."""
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
            result.expect(counter.begun.wait(PATIENCE), "nothing is acknowledged")
            time.sleep(2 * INTERVAL + chance.uniform(0, INTERVAL))
            broker.kill()
            thread.join(PATIENCE)
            result.tried += 1
            broker.start()
            kept = retained(broker.port).get("count", 0)
            broker.kill()
            times = counter.acknowledged
            all_acknowledged += len(times)
            # One more may be stored than was acknowledged; what is stored is what was counted until some moment.
            result.expect(0 < kept <= len(times) + 1, f"{kept} is retained, {len(times)} were acknowledged")
            if kept < len(times):
                lost += len(times) - kept
                longest = max(longest, times[-1] - times[kept])
    finally:
        broker.end()
    if measured:
        result.expect(longest <= INTERVAL + _DELAY, f"{longest:.3f} s were lost, {INTERVAL} s are configured")
    result.figures = {
        "acknowledged": all_acknowledged,
        "lost": lost,
        "window": f"{longest * 1000:.0f} ms",
        "configured": f"{INTERVAL * 1000:.0f} ms",
    }
    return result
