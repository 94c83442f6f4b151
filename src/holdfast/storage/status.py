"""What the store says of itself in the broker's own topics."""

from __future__ import annotations

from holdfast.storage.database import Durability
from holdfast.storage.store import DurableStore


def figures(store: DurableStore, durability: Durability, flush_interval: float) -> dict[str, object]:
    """Return how durable what is acknowledged is and, while the store is open, what its writer does, by name."""
    found: dict[str, object] = {
        "durability": durability.value,
        "loss_window": durability.loss_window(flush_interval),
        "quarantined": len(store.quarantined),
    }
    if store.parts is not None:
        writer = store.parts.writer
        found["pending_bytes"] = writer.pending_bytes
        found["commits"] = writer.counters.commits
        found["rows"] = writer.counters.rows
        found["coalesced"] = writer.counters.coalesced
        found["seconds"] = f"{writer.counters.seconds:.3f}"
        found["available"] = int(writer.available and store.parts.readers.available)
        found["failed"] = writer.counters.failed
        found["damaged"] = int(store.parts.database.damage is not None)
    return found


def soundness(store: DurableStore) -> dict[str, object]:
    """Return what has been found damaged: ``damage`` in words, None for nothing, and files that are ``quarantined``."""
    damage = None if store.parts is None else store.parts.database.damage
    return {"damage": None if damage is None else str(damage), "quarantined": store.quarantined}
