"""The limit on the memory of the process."""

from __future__ import annotations

from holdfast.config import Config, ConfigError
from holdfast.config.sections.limits import MemoryShare
from holdfast.sessions.monitoring.process_memory import MemoryUnknown, available_bytes, resident_bytes


def most_memory(config: Config) -> int | None:
    """Return ``limits.memory`` in bytes, None for no limit. Raises ConfigError if this system does not tell memory."""
    limit = config.limits.memory
    if limit is None:
        return None
    try:
        resident_bytes()
        return available_bytes() * limit.percent // 100 if isinstance(limit, MemoryShare) else limit
    except MemoryUnknown as unknown:
        problem = f'the memory of this process cannot be limited here: {unknown}; allowed: "infinity"'
        raise ConfigError([config.source.problem(("limits", "memory"), problem)]) from None
