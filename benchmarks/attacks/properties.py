"""PUBLISH packets that consist of User Properties."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.attacker import told
from benchmarks.attacks.field import Field
from holdfast.wire import Properties
from holdfast.wire import packets as p

_MANY = Properties(user_properties=(("", ""),) * 199_000)  # 5 bytes each, just below max_packet_size
_DAY = 86_400


def _publish(field: Field) -> Iterator[str]:
    """For a Session that is away, and to be retained: what is accepted costs memory twice."""
    field.attacker("absent", expiry=_DAY).subscribe(["up/#"])
    field.restart()
    yield ""
    answers = []
    for number in range(field.many(20)):
        attacker = field.attacker()
        attacker.send(p.Publish(f"up/{number}", b"", 1, True, packet_identifier=1, properties=_MANY))
        answers.append(told(attacker.next_packet(30)))
    yield f"{', '.join(sorted(set(answers)))} ({len(answers)} times)"


ATTACKS = {"3: 1 MB of User Properties in each PUBLISH": _publish}
