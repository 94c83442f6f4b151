"""Compare-and-set in the retainer: conditional changes that wait for their decision.

How it works. The store decides in the writer's transaction, so a conditional change is announced and routed after its
commit, unlike other changes. Meanwhile others may change the same topic, and their messages are routed at once:

    client A   a=1 if the revision is 70    stamped 71, waits for its commit
    client B   a=2                          stamped 72, routed at once
    commit     71 was stored before 72      A is told 71; a=1 is not routed: all subscribers have a=2, which is newer

So the pending changes are told of each change of their topic. One that is *overtaken* is not routed: no subscriber gets
an older message after a newer one.
"""

from __future__ import annotations

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred

from holdfast.core.messages import RetainedChange
from holdfast.core.tickets import FailureKind, StorageFailure, both
from holdfast.retained.leases import LeaseRows, NoLeaseRows, Wanted
from holdfast.retained.store.conditional import ConditionalChange, Verdict
from holdfast.retained.store.interfaces import IRetainedStore

#: how often a change is stamped anew because others have stored higher revisions
_MOST_STAMPS = 10


@frozen
class Decision:
    """The decision about a conditional change.

    ``revision`` is that of the present message, 0 for no message. ``overtaken`` tells that subscribers have been sent a
    newer message of the topic.
    """

    verdict: Verdict
    revision: int
    overtaken: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the change is stored, by this request or by the one that it repeats."""
        return self.verdict is not Verdict.REFUSED


@define(eq=False)
class _Pending:
    change: ConditionalChange
    lease: Wanted | None = None
    decided: Deferred[Decision] = field(factory=Deferred)
    newest: int = 0  #: the highest revision of other changes of the topic
    stamps: int = 1


class CompareAndSets:
    """The conditional changes that wait for their decision, by topic."""

    def __init__(self, store: IRetainedStore, leases: LeaseRows | None = None) -> None:
        self._store = store
        self._leases = leases or NoLeaseRows()
        #: public, because each plain change looks whether there are any
        self.pending: dict[str, list[_Pending]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.pending.values()))

    def note(self, topic: str, revision: int) -> None:
        """Note another change of a topic, which is announced now."""
        for pending in self.pending.get(topic, ()):
            pending.newest = max(pending.newest, revision)

    def submit(self, change: ConditionalChange, lease: Wanted | None = None) -> Deferred[Decision]:
        """Give a change to the store. Fails with :class:`StorageFailure`; an unavailable store may have stored it.

        The ``lease`` of its message is stored in the same commit.
        """
        pending = _Pending(change, lease)
        self.pending.setdefault(change.row.topic, []).append(pending)
        self._put(pending)
        return pending.decided

    def _put(self, pending: _Pending) -> None:
        ticket = self._store.put_if(pending.change)
        if pending.lease is not None:
            ticket = both(ticket, self._leases.give(pending.lease.of(pending.change.change), committed=True))
        ticket.when_settled(lambda failure: self._settled(pending, failure))

    def _settled(self, pending: _Pending, failure: StorageFailure | None) -> None:
        outcome = pending.change.outcome
        if failure is None:
            assert outcome is not None
            if outcome.verdict is Verdict.OUTRUN:
                if pending.stamps < _MOST_STAMPS:
                    pending.stamps += 1
                    pending.change.stamp(_stamped(pending.change.change, self._store.next_revision()))
                    self._put(pending)
                    return
                failure = StorageFailure(FailureKind.UNAVAILABLE, "others change this topic all the time")
        topic = pending.change.row.topic
        others = self.pending[topic]
        others.remove(pending)
        if not others:
            del self.pending[topic]
        if failure is not None:
            pending.decided.errback(failure)
        else:
            assert outcome is not None
            pending.decided.callback(Decision(outcome.verdict, outcome.revision, pending.newest > outcome.revision))


def _stamped(change: RetainedChange, revision: int) -> RetainedChange:
    """Return the same change with another revision."""
    message = change.message
    return evolve(change, revision=revision, message=None if message is None else evolve(message, revision=revision))
