"""The clock of the machine: the expiry of messages, tokens and certificates depends on it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator

from holdfast.config import Config
from holdfast.doctor.finding import Finding, advice, problem
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.revisions import TIME_SHIFT
from holdfast.storage.writing.node_totals import read_totals

#: adjtimex(2): nobody keeps the clock in step
_UNSYNCHRONISED = 5
#: bytes: more than struct timex of any system
_TIMEX = 512
#: milliseconds that nodes' clocks may differ
_TOLERANCE = 60_000


def synchronised(_config: Config, state: Callable[[], int] | None = None) -> Iterator[Finding]:
    """Yield a finding if the kernel says that nothing keeps the clock in step."""
    if (state or _kernel_state)() == _UNSYNCHRONISED:
        yield advice(
            "clock", "nothing keeps it in step with the time of the world", "start systemd-timesyncd, chrony or ntpd"
        )


def not_set_back(config: Config, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield a finding if the newest change in the database is later than now."""
    database = database_at(config.storage.url, Durability.FULL, 0, 1.0)
    try:
        database.check_present()
        with database.explaining_errors():
            connection = database.connect_reader()
            try:
                newest = read_totals(connection.cursor()).revision_mark >> TIME_SHIFT
            finally:
                connection.close()
    except StoreUnusable:  # the check of the database tells it
        return
    ahead = newest - now() * 1000
    if ahead > _TOLERANCE:
        yield problem(
            "clock",
            f"it is {ahead / 1000:,.0f} s before the newest change in the database, so it was set back",
            "set the clock; until then, messages expire late",
        )


def _kernel_state() -> int:
    """Return the state of the kernel's clock, -1 if the system does not tell it."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX)))
    except (AttributeError, OSError):  # not Linux
        return -1
