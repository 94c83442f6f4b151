"""A lease of a retained message, and what a publisher asks for."""

from __future__ import annotations

from attrs import frozen

from holdfast.extensions.leases import LeaseTerm
from holdfast.messages import RetainedChange


@frozen
class Wanted:
    """What a PUBLISH asks for. ``session`` is the stored identifier of its Session, 0 if that ends with the process."""

    term: LeaseTerm
    session: int

    def of(self, change: RetainedChange) -> Lease:
        """Return the lease of a change that sets a message."""
        assert change.client_id is not None
        return Lease(change.topic, change.revision, change.client_id, change.username, self.term, self.session)


@frozen(eq=False)
class Lease:
    """The lease of the message that has this revision: no other message of the topic is ever cleared by it."""

    topic: str
    revision: int
    client_id: str
    username: str | None
    term: LeaseTerm
    session: int
