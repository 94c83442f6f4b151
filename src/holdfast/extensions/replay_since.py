"""Asking for only what changed since a token or a time: the answers."""

from __future__ import annotations

#: everything is replayed, or only what has changed
FULL, DELTA = "full", "delta"
