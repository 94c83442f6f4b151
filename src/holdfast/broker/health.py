"""Whether the process is alive, and whether it is ready for clients. A failed check names its reason.

*Alive* means that the reactor runs, which every answer proves. An orchestrator restarts a process that does not answer.
*Ready* means that the broker can serve clients. An orchestrator leaves a process alone that is alive but not ready: a
restart repairs neither a disk nor a database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from attrs import field, frozen

from holdfast.broker.figures import Heartbeat, Surroundings
from holdfast.storage.store import DurableStore

OK = "ok"
#: seconds by which a heartbeat may be late
_LATE = 5.0


@frozen
class Health:
    """The checks by name: ``"ok"``, or the reason of the failure."""

    checks: Mapping[str, str] = field(factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether no check fails."""
        return all(each == OK for each in self.checks.values())

    def content(self) -> dict[str, object]:
        """Return the content of an answer."""
        return {"status": OK if self.is_good else "failing", "checks": dict(self.checks)}


#: Bytes that must be free on the disk of node.data_dir: with fewer, the next commits may fail.
LEAST_DISK = 50 * 1024 * 1024


class HealthChecks:
    """Makes the checks. ``closed_listeners`` returns the names of listeners that do not listen."""

    def __init__(
        self,
        *,
        heartbeat: Heartbeat,
        durable: DurableStore,
        closed_listeners: Callable[[], Collection[str]],
        surroundings: Callable[[], Surroundings],
        is_stopping: Callable[[], bool],
        is_draining: Callable[[], bool],
    ) -> None:
        self._heartbeat = heartbeat
        self._durable = durable
        self._closed_listeners = closed_listeners
        self._surroundings = surroundings
        self._is_stopping = is_stopping
        self._is_draining = is_draining

    def alive(self) -> Health:
        """Tell whether the reactor runs."""
        late = self._heartbeat.late_by
        return Health({"reactor": OK if late < _LATE else f"its heartbeat is {late:.1f} s late"})

    def ready(self) -> Health:
        """Tell whether clients can be served."""
        return Health({
            "process": self._process(),
            "store": self._store(),
            "listeners": self._listeners(),
            "disk": self._disk(),
        })  # fmt: skip

    def _process(self) -> str:
        if self._is_stopping():
            return "the broker is stopping"
        return "this node drains: its clients are sent to other members" if self._is_draining() else OK

    def _store(self) -> str:
        parts = self._durable.parts
        if parts is None:
            return "the database is not open"
        if parts.database.damage is not None:
            return "the database is damaged, and nothing is stored"
        if not parts.readers.available:
            return "the database cannot be read"
        if not parts.writer.available:
            return "the database cannot be written"
        return OK

    def _listeners(self) -> str:
        closed = self._closed_listeners()
        return f"these listeners do not listen: {', '.join(sorted(closed))}" if closed else OK

    def _disk(self) -> str:
        free = self._surroundings().disk_free_bytes
        if free is None or free >= LEAST_DISK:
            return OK
        return f"the disk of node.data_dir has {free} bytes left, fewer than {LEAST_DISK}"
