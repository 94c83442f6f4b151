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

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from attrs import define, field

from holdfast.cluster.messages import ENDED, Interest, Members, Wanted
from holdfast.core.tickets import COMMITTED, CommitTicket

#: changes that one message tells
_PER_MESSAGE = 200


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
        """Tell a node everything: it is new, or may have missed something."""
        # The node is not told the changes of this turn alone: it would answer for earlier ones that it has missed.
        self._peers.pop(node, None)
        self.flush()
        self._peers[node] = -1
        changes = list(self._everything())
        first = range(0, max(len(changes), 1), _PER_MESSAGE)
        for start in first:
            is_last = start + _PER_MESSAGE >= len(changes)
            part = tuple(changes[start : start + _PER_MESSAGE])
            self._tell(node, Interest(self.version if is_last else 0, part, is_last))

    def peer_down(self, node: int) -> None:
        """Wait for a node no more."""
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

    def _everything(self) -> Iterator[Wanted | Members]:
        for topic_filter, entry in self._filters.items():
            yield Wanted(topic_filter, entry.qos)
        for members, _ in self._groups.values():
            yield members

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
        for start in range(0, len(changes), _PER_MESSAGE):
            part = tuple(changes[start : start + _PER_MESSAGE])
            version = self.version if start + _PER_MESSAGE >= len(changes) else 0
            for node in self._peers:
                self._tell(node, Interest(version, part))

    def _ticket(self, version: int) -> CommitTicket:
        if all(applied >= version for applied in self._peers.values()):
            return COMMITTED
        ticket = self._waiting.get(version)
        if ticket is None:
            ticket = self._waiting[version] = CommitTicket()
            heappush(self._versions, version)
        return ticket

    def _settle(self) -> None:
        least = min(self._peers.values(), default=self.version)
        while self._versions and self._versions[0] <= least:
            self._waiting.pop(heappop(self._versions)).settle()
