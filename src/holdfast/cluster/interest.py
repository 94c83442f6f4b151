"""The interest of this node's Sessions as other nodes know it, and the gate before SUBACK. Without I/O.

How it works. Each change of the interest (a Topic Filter with its most QoS, or the members of a group) has a version.
All living nodes are told, in order; each answers with the version that has effect there. A subscription waits for the
version of its change until all have answered:

    version 7    plant/# with QoS 1       told to nodes 2 and 3; SUBACK waits
    node 2       applied 7
    node 3       is taken for dead        not waited for any more: SUBACK leaves
    node 3       is back                  is told everything, as one whole, which is version 7 as well
    version 7    plant/# with QoS 0       another Session's: nothing changes, so nothing waits

The invariant: a ticket is settled only when each living node has applied its version. A node that comes while a ticket
waits is waited for as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from attrs import define, field

from holdfast.cluster.messages import ENDED, Interest, Members, Wanted
from holdfast.core.tickets import COMMITTED, CommitTicket

#: changes that one message tells, and the characters of their filters: the receiver applies it in one turn
_PER_MESSAGE, _CHARACTERS = 50, 200_000


@define(eq=False)
class _Filter:
    """How many Sessions want a Topic Filter with each QoS, and the version of its last change."""

    counts: list[int] = field(factory=lambda: [0, 0, 0])
    version: int = 0

    @property
    def qos(self) -> int:
        """The most QoS, :data:`ENDED` if nobody wants it."""
        return next((qos for qos in (2, 1, 0) if self.counts[qos]), ENDED)


class OwnInterest:
    """What the Sessions of this node want. ``tell`` sends a message to a node, ``soon`` calls later in this turn."""

    def __init__(self, tell: Callable[[int, Interest], None], soon: Callable[[Callable[[], None]], object]) -> None:
        self._tell = tell
        self._soon = soon
        self._filters: dict[str, _Filter] = {}
        #: by shared filter, with the version of their last change
        self._groups: dict[str, tuple[Members, int]] = {}
        #: by node: the version that it has applied; -1 before it has applied a whole interest
        self._peers: dict[int, int] = {}
        #: by node: the filters and groups that are still to be told
        self._untold: dict[int, deque[str]] = {}
        self._waiting: dict[int, CommitTicket] = {}  # by version
        self._versions: list[int] = []  # those of the waiting tickets, as a heap
        self._changed: dict[str, Wanted | Members] = {}
        self._is_due = False
        self.version = 0

    def want(self, topic_filter: str, qos: int) -> CommitTicket:
        """Note one more Session for a Topic Filter. Return the ticket that its SUBACK waits for."""
        entry = self._filters.setdefault(topic_filter, _Filter())
        before = entry.qos
        entry.counts[qos] += 1
        if before == ENDED or before < qos:
            entry.version = self._change(topic_filter, Wanted(topic_filter, qos))
        return self._ticket(entry.version)

    def end(self, topic_filter: str, qos: int) -> None:
        """Take back one :meth:`want`."""
        entry = self._filters[topic_filter]
        before = entry.qos
        entry.counts[qos] -= 1
        left = entry.qos
        if left != before:
            self._change(topic_filter, Wanted(topic_filter, left))
        if left == ENDED:
            del self._filters[topic_filter]

    def group(self, shared_filter: str, online: int, away: int) -> CommitTicket:
        """Note the members of a group. Return the ticket that the SUBACK of a new member waits for."""
        members = Members(shared_filter, online, away)
        before, version = self._groups.get(shared_filter, (Members(shared_filter, 0, 0), 0))
        if before != members:
            version = self._change(shared_filter, members)
            if online or away:
                self._groups[shared_filter] = members, version
            else:
                del self._groups[shared_filter]
        return self._ticket(version) if version else COMMITTED

    def peer_up(self, node: int) -> None:
        """Tell a node everything, in steps: it is new, or may have missed something."""
        self._peers[node] = -1
        untold = self._untold[node] = deque((*self._filters, *self._groups))
        self._soon(lambda: self._tell_more(node, untold))

    def _tell_more(self, node: int, untold: deque[str]) -> None:
        """Tell the next part of everything. Changes meanwhile are told as well, without their version."""
        if self._untold.get(node) is not untold:  # it is gone, or is told from the beginning again
            return
        part: list[Wanted | Members] = []
        size = 0
        while untold and len(part) < _PER_MESSAGE and size < _CHARACTERS:
            name = untold.popleft()
            size += len(name)
            entry = self._filters.get(name)
            if entry is not None:
                part.append(Wanted(name, entry.qos))
            elif name in self._groups:
                part.append(self._groups[name][0])
        if untold:
            self._tell(node, Interest(0, tuple(part)))
            self._soon(lambda: self._tell_more(node, untold))
            return
        self.flush()  # the version that is told now includes the changes of this turn
        del self._untold[node]
        self._tell(node, Interest(self.version, tuple(part), True))

    def peer_down(self, node: int) -> None:
        """Wait for a node no more."""
        self._untold.pop(node, None)
        if self._peers.pop(node, None) is not None:
            self._settle()

    def applied(self, node: int, version: int) -> None:
        """Note that the interest up to this version has effect at a node."""
        if node in self._peers:
            self._peers[node] = max(version, self._peers[node])
            self._settle()

    def is_applied_by(self, node: int) -> bool:
        """Tell whether a node has applied a whole interest of this one since it was told."""
        return self._peers.get(node, -1) >= 0

    @property
    def waits(self) -> int:
        """How many versions wait for other nodes."""
        return len(self._waiting)

    def _change(self, key: str, change: Wanted | Members) -> int:
        self.version += 1
        self._changed.pop(key, None)  # the order of the changes of one key is that of the last one
        self._changed[key] = change
        if not self._is_due:
            self._is_due = True
            self._soon(self.flush)
        return self.version

    def flush(self) -> None:
        """Tell all nodes what has changed in this turn."""
        self._is_due = False
        changes, self._changed = list(self._changed.values()), {}
        if not changes:
            return
        *parts, last = _parts(changes)
        for node in list(self._peers):
            for part in parts:
                self._tell(node, Interest(0, part))
            self._tell(node, Interest(0 if node in self._untold else self.version, last))

    def _ticket(self, version: int) -> CommitTicket:
        if all(applied >= version for applied in self._peers.values()):
            return COMMITTED
        ticket = self._waiting.get(version)
        if ticket is None:
            ticket = self._waiting[version] = CommitTicket()
            heappush(self._versions, version)
        return ticket

    def _settle(self) -> None:
        wrong: Exception | None = None
        while self._versions and self._versions[0] <= min(self._peers.values(), default=self.version):
            try:
                self._waiting.pop(heappop(self._versions)).settle()
            except Exception as error:  # noqa: BLE001 - raised below: it concerns one of many clients
                wrong = wrong or error
        if wrong is not None:
            raise wrong


def _parts(changes: list[Wanted | Members]) -> list[tuple[Wanted | Members, ...]]:
    """Return the changes in parts of one message each; one part at least."""
    parts: list[tuple[Wanted | Members, ...]] = []
    part: list[Wanted | Members] = []
    size = 0
    for change in changes:
        size += len(change.topic_filter if isinstance(change, Wanted) else change.shared_filter)
        if part and (len(part) == _PER_MESSAGE or size > _CHARACTERS):
            parts.append(tuple(part))
            part, size = [], 0
        part.append(change)
    return [*parts, tuple(part)]
