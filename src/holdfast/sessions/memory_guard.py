"""Keeps the memory of the process below ``limits.memory``: refuses clients, and disconnects the costliest ones.

How it works. The guard measures once a second. With a limit of 1000 MB:

    900 MB       no CONNECT is accepted, until memory is below 850 MB
    950 MB       the client that holds most is disconnected: what waits in its Session, and what it has not read
    a second     memory has fallen, but is above 950 MB: the next client
    later        memory has not fallen: the guard waits for 2 seconds, then for 4, up to a minute

A client that holds less than 1 MB is never disconnected. Python may keep freed memory, so memory need not fall at
once; without the growing pause all clients would be disconnected for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from resource import getpagesize

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.counters import Counters
from holdfast.sessions.registry import SessionRegistry
from holdfast.watch.log import client_text
from holdfast.wire import ReasonCode

#: Parts of the limit: above the first no client is admitted, until below the second; above the third one must go.
REFUSING, ADMITTING, DISCONNECTING = 0.90, 0.85, 0.95
#: Bytes that a client must hold to be disconnected.
LEAST_HELD = 1 << 20
#: The longest pause between two disconnects that do not help, in seconds.
LONGEST_PAUSE = 60.0
#: clients that are looked at in one step
_LOOKS_PER_STEP = 100


class MemoryGuard(Service):
    """Compares the memory of the process, as ``measure`` returns it in bytes, with ``most`` bytes."""

    _log = Logger()

    def __init__(
        self,
        most: int,
        *,
        measure: Callable[[], int],
        clock: IReactorTime,
        work: LongWork,
        registry: SessionRegistry,
        counters: Counters,
    ) -> None:
        self.most = most
        #: whether clients are refused now
        self.refuses = False
        self._measure = measure
        self._clock = clock
        self._work = work
        self._registry = registry
        self._counters = counters
        self._before = 0  # the memory at the last disconnect
        self._pause = 1.0
        self._not_before = 0.0
        self._job = PeriodicJob(self._look, name="the look at limits.memory", interval=1, clock=clock)

    def startService(self) -> None:
        """Begin to measure."""
        Service.startService(self)
        self._job.start()

    def stopService(self) -> None:
        """Measure no more."""
        Service.stopService(self)
        self._job.stop()

    def _look(self) -> Deferred[None] | None:
        used = self._measure()
        self._decide(used)
        now = self._clock.seconds()
        if used < DISCONNECTING * self.most:
            self._pause, self._before = 1.0, 0
            return None
        if now < self._not_before:
            return None
        helped = not self._before or used < self._before
        self._pause = 1.0 if helped else min(LONGEST_PAUSE, 2 * self._pause)
        self._before, self._not_before = used, now + self._pause
        return self._work.do(self, self._disconnect(used))

    def _decide(self, used: int) -> None:
        """Begin or end to refuse clients."""
        if not self.refuses and used >= REFUSING * self.most:
            self.refuses = True
            self._log.warn(
                "the process has {used} bytes of memory (limits.memory is {most}): clients are refused",
                used=used,
                most=self.most,
            )
        elif self.refuses and used < ADMITTING * self.most:
            self.refuses = False
            self._log.info("the process has {used} bytes of memory: clients are admitted again", used=used)

    def _disconnect(self, used: int) -> Iterator[int]:
        """Find the client that holds most, in steps, and disconnect it."""
        most, costliest = LEAST_HELD - 1, ""
        for number, client_id in enumerate(self._registry.connected()):
            if not number % _LOOKS_PER_STEP:
                yield 1
            held = self._registry.held_by(client_id)
            if held > most:
                most, costliest = held, client_id
        if not costliest:
            return
        yield 1
        if self._registry.close_client(
            costliest,
            ReasonCode.QUOTA_EXCEEDED,
            f"the broker is short of memory, and {most} bytes wait for this client",
        ):
            self._counters.clients_over_memory += 1
            self._log.warn(
                "{client} is disconnected, for which {held} bytes wait: the process has {used} bytes of memory"
                " (limits.memory is {most})",
                client=client_text(costliest),
                held=most,
                used=used,
                most=self.most,
            )


# The memory of this process, and the memory that it may have, as Linux tells them.


_PAGE = getpagesize()
_ROOT = Path("/")


class MemoryUnknown(Exception):
    """The system does not tell it. The text says what is missing."""


def resident_bytes(root: Path = _ROOT) -> int:
    """Return the bytes of this process that are in memory. Raises MemoryUnknown."""
    return int(_read(root / "proc/self/statm").split()[1]) * _PAGE


def available_bytes(root: Path = _ROOT) -> int:
    """Return the bytes that this process may have: those of the machine, or fewer in a container or a systemd unit.

    Raises MemoryUnknown.
    """
    most = [1024 * int(line.split()[1]) for line in _read(root / "proc/meminfo").splitlines() if "MemTotal" in line]
    if not most:
        raise MemoryUnknown("/proc/meminfo has no MemTotal")
    # "0::/system.slice/holdfast.service": each group above may have a limit too.
    groups = [Path(line[4:]) for line in _lines(root / "proc/self/cgroup") if line.startswith("0::/")] or [Path()]
    most += [int(limit) for limit in _lines(root / "sys/fs/cgroup/memory/memory.limit_in_bytes") if limit.isdigit()]
    for group in (groups[0], *groups[0].parents):
        for limit in _lines(root / "sys/fs/cgroup" / group.relative_to(group.anchor) / "memory.max"):
            if limit.isdigit():
                most.append(int(limit))
    return min(most)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise MemoryUnknown(f"{path} cannot be read: {error.strerror}") from None
