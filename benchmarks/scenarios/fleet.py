"""A day of a fleet: thousands of connected devices, each with a message now and then, and six subscribers.

After the measured time, all devices lose their connections and connect again, while two other clients ping: the storm.
Devices come by plain TCP, TLS or WebSocket, or by plain TCP to a broker with rules for each of them. The subscribers
always come by plain TCP, so that the cases differ by what the devices cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.makes import AUTHORITY, PLAIN, RULES, TLS, WEBSOCKET, start
from benchmarks.results import P50, P99, P999, RATE, Metric, Result

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

MANY = 10_000
#: The number of devices and how they come.
CASES = ((1_000, PLAIN), (MANY, PLAIN), (MANY, TLS), (MANY, WEBSOCKET), (MANY, RULES))
COST = Metric("broker", "µs a message", False)
EACH = Metric("each", "KiB", False)
MEMORY = Metric("memory", "MiB", False)
STORM = Metric("storm", "connects/s", True)
STORM_COST = Metric("storm, broker", "µs a connect", False)
STORM_WAIT = Metric("storm, worst wait", "ms", False)
STORM_PING = Metric("storm, ping p99", "ms", False)
RESUMED = Metric("storm, resumed", "%", True)
_METRICS = (RATE, COST, P50, P99, P999, EACH, MEMORY, STORM, STORM_COST, STORM_WAIT, STORM_PING)
_TITLES = {PLAIN: "plain", TLS: "TLS", WEBSOCKET: "WebSocket", RULES: "rules"}
_OPTIONS: dict[str, dict[str, Any]] = {TLS: {"tls": 1}, WEBSOCKET: {"websocket": 1}}
#: Devices that connect at once in the storm.
_AT_ONCE = 512


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own for each case, so that connections do not get memory that others have left."""
    for size, transport in CASES:
        if transport not in scale.transports:
            continue
        metrics = [*_METRICS, *([RESUMED] if transport == TLS else [])]
        with result.case(name(size, transport), metrics) as case:
            own = start(broker.name, broker.site, transport=transport)
            try:
                options = {"device_port": own.device_port, "storm": _AT_ONCE, **_OPTIONS.get(transport, {})}
                if transport == TLS:
                    options["ca"] = own.directory / AUTHORITY
                # Those of 1000 send more often, so that there is something to measure.
                options["period"] = 60 * size / MANY
                report = generator.run(own, "fleet", count=size, seconds=5 * scale.seconds, **options)
            finally:
                own.stop()
            case.take(report, {RATE: "rate", P50: "p50_ms", P99: "p99_ms", P999: "p999_ms", EACH: "each_kib"})
            case[COST] = report.broker_us
            case[MEMORY] = report["memory_kib"] / 1024
            storm = report.part("storm_")
            case.take(storm, {STORM: "rate", STORM_WAIT: "max_ms", STORM_PING: "ping_p99_ms"})
            case[STORM_COST] = storm.broker_us
            if transport == TLS:
                case[RESUMED] = 100 * storm["resumed"]


def name(size: int, transport: str) -> str:
    """The name of the case with so many devices that come in this way."""
    return f"{size:,} devices, {_TITLES[transport]}"
