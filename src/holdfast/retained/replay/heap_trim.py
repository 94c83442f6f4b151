"""The C library's heap. Large blocks that were freed stay resident as long as anything younger lies above them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _trim() -> Callable[[int], object]:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not the GNU C library; others give back by themselves, or offer no way
        return lambda _: None
    return trim


_malloc_trim = _trim()


def trim_heap() -> None:
    """Give what is free to the system: milliseconds for tens of megabytes, microseconds when there is little."""
    _malloc_trim(0)
