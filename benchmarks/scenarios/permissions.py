"""What permissions cost: processor time for each message with rules, as a percentage of that without.

The brokers with and without rules run at the same time and take turns, and the best turn of each counts: so other work
of the machine hardly changes the percentage, and the first turn, in which the rules are asked about each topic, does
not count. Without authentication all clients are guests: the rules for everyone decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.connection import BenchError
from benchmarks.makes import start
from benchmarks.results import Metric, Result
from benchmarks.scenarios.seeding import ensure

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

COST = Metric("processor time", "% of without", False)
EACH = Metric("processor time", "µs a message", False)
#: The brokers: the number of rules, and whether each delivery is judged.
_RULES = {"10 rules": (10, False), "10,000 rules": (10_000, False), "10,000 rules, deliveries judged": (10_000, True)}
_WITHOUT = "without"
#: retained messages for the replays, at most
_RETAINED = 100_000
#: microseconds a message, where the clock shows none
_LEAST = 0.001
#: Replays in each of several turns: one takes a few ticks of the clock that counts processor time.
_REPLAYS_IN_A_TURN = 5
#: With 1000 messages under way, the broker takes 10 or 1000 of them at once, so that its cost varies tenfold.
_IN_FLIGHT = 100
_LIVE: dict[str, dict[str, Any]] = {
    "fan-in, QoS 0": {"publishers": 10, "qos": 0},
    "fan-in, QoS 1": {"publishers": 10, "qos": 1, "inflight": _IN_FLIGHT},
    "fan-in, 2000 topics each": {"publishers": 10, "topics": 2000},
    "fan-out, QoS 0": {"subscribers": 100, "qos": 0},
}
_REPLAYS = {f"replay, QoS {qos}": qos for qos in (0, 1)}


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Run each workload in turn on all brokers."""
    with ExitStack() as stack:
        options = {_WITHOUT: (0, False), **_RULES}
        brokers = {name: stack.enter_context(_broker(broker, *each)) for name, each in options.items()}
        for each in brokers.values():
            ensure(each, min(_RETAINED, scale.retained[-1]))
        for each in brokers.values():
            each.quiet()  # the stored messages are surveyed then
        for workload in (*_LIVE, *_REPLAYS):
            spent: dict[str, list[float]] = {name: [] for name in brokers}
            without = _LEAST  # a short run may take less than a tick of the clock
            with result.case(case(workload, _WITHOUT), [EACH]) as figures:
                for _ in range(scale.turns):
                    for name, each in brokers.items():
                        spent[name].append(_spent(each, workload, scale))
                without = figures[EACH] = max(_LEAST, min(spent[_WITHOUT]))
            for name in _RULES:
                with result.case(case(workload, name), [COST]) as figures:
                    if len(spent[name]) < scale.turns:
                        raise BenchError("not all turns were measured")
                    figures[COST] = 100 * min(spent[name]) / without


def case(workload: str, rules: str) -> str:
    """Return the name of a case."""
    return f"{workload}, {rules}"


def cases() -> Iterator[tuple[str, bool]]:
    """Yield the names of all cases, and whether each has a goal: a replay that asks about each message has none."""
    for workload in (*_LIVE, *_REPLAYS):
        for rules, (_, judged) in _RULES.items():
            yield case(workload, rules), not (judged and workload in _REPLAYS)


def _spent(broker: Broker, workload: str, scale: Scale) -> float:
    """Return the microseconds of the broker's processor time for each message."""
    broker.settle()
    if workload in _LIVE:
        report = generator.run(broker, "flow", seconds=scale.seconds, messages=scale.messages, **_LIVE[workload])
        return report.broker_us
    replays = _REPLAYS_IN_A_TURN if scale.turns > 1 else 1
    reports = [generator.run(broker, "replay", expect=broker.retained, qos=_REPLAYS[workload]) for _ in range(replays)]
    return sum(report.broker_us for report in reports) / len(reports)


@contextmanager
def _broker(like: Broker, count: int, judged: bool) -> Iterator[Broker]:
    """Start a broker with so many rules."""
    with TemporaryDirectory(prefix="bench-rules-", dir=like.site.directory) as directory:
        rules = Path(directory) / "rules.toml"
        rules.write_text("\n".join(_tables(count, judged)))
        rules.chmod(0o600)
        configuration = Path(directory) / "holdfast.toml"
        configuration.write_text(
            f'[authorization]\nsources = ["rules"]\nsubscribe_partially = {str(judged).lower()}\n'
            '[authorization.rules]\ntype = "file"\npath = "rules.toml"\n'
        )
        options = ["-c", str(configuration)] if count else []
        broker = start("holdfast", replace(like.site, holdfast_args=[*like.site.holdfast_args, *options]))
        try:
            yield broker
        finally:
            broker.stop()


def _tables(count: int, judged: bool) -> Iterator[str]:
    """Yield rules for single users, half of them for everyone if deliveries are judged. The last one allows all."""
    for number in range(count - 1 - judged):
        who = f'users = ["user{number}"]\n' if number % 2 or not judged else ""
        allow = str(number % 4 < 2).lower()
        yield f'[[rule]]\n{who}action = "all"\ntopics = ["plant/{number}/+/%c", "hall/{number}/#"]\nallow = {allow}\n'
    if judged:
        yield '[[rule]]\naction = ["receive"]\ntopics = ["secret/#"]\nallow = false\n'
    yield '[[rule]]\naction = "all"\ntopics = ["#"]\nallow = true\n'
