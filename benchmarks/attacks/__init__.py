"""The attacks of the scenario `hostile`, by name, in the order in which they run.

An attack is a generator. Up to its first ``yield`` it prepares; then the bystander begins. Up to the second one it
attacks, and yields what the broker answered. After that its connections are reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.attacks import answers, connects, ends, inflight, properties, subscriptions
from benchmarks.attacks.field import Field

Attack = Callable[[Field], Iterator[str]]

ATTACKS: dict[str, Attack] = {
    **answers.ATTACKS,
    **inflight.ATTACKS,
    **properties.ATTACKS,
    **subscriptions.ATTACKS,
    **ends.ATTACKS,
    **connects.ATTACKS,
}
