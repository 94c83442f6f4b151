"""An asyncio event loop in a thread, for the clients that need one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from tests.processes import PATIENCE

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the loop; return its result."""
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, PATIENCE), _loop()).result()
