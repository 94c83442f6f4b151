"""The paths of calls that commands make. Commands import them without Twisted."""

from __future__ import annotations

TRACE_PATH = "/api/v5/trace"
