"""What the store says of itself in the broker's own topics."""

from __future__ import annotations

from holdfast.storage.database import Durability
from holdfast.storage.store import DurableStore


def figures(store: DurableStore, durability: Durability, flush_interval: float) -> dict[str, object]:
    """Return how durable what is acknowledged is and, while the store is open, what its writer does, by name."""
    found: dict[str, object] = {
        "durability": durability.value,
        "loss_window": durability.loss_window(flush_interval),
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
    return found
