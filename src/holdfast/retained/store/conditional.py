"""Conditional changes of retained messages: what is asked, what comes out, and the decision, a pure function."""

from __future__ import annotations

from enum import Enum
from hashlib import sha256

from attrs import define, field, frozen

from holdfast.core.extensions import Conditions
from holdfast.core.messages import RetainedChange, has_expired
from holdfast.retained.store.rows import Row, row_of
from holdfast.wire.properties import Properties
from holdfast.wire.property_codec import encode_properties

# A conditional change, and its outcome.


class Verdict(Enum):
    """The decision about a conditional change."""

    STORED = "stored"  #: the conditions held, and the change is stored
    PRESENT = "present"  #: it is a repetition, and the present change of the topic is its own
    REFUSED = "refused"  #: a condition does not hold
    OUTRUN = "outrun"  #: the conditions hold, but the change needs a higher revision: the caller stamps it anew


@frozen
class Outcome:
    """The decision, and the revision of the present message after it: 0 for no message.

    For ``OUTRUN``, the revision is the one that the change has to exceed.
    """

    verdict: Verdict
    revision: int


@define(eq=False)
class ConditionalChange:
    """A change that is stored only if the conditions hold when its transaction runs.

    ``properties`` are those of the PUBLISH. A tombstone keeps them too: so a repeated clear is recognized. ``repeated``
    tells that the PUBLISH had DUP 1. ``stamps`` are all revisions that the change has had: a commit whose outcome is
    unknown is repeated, and may find the change stored. The store sets ``outcome`` before it settles the ticket.
    """

    change: RetainedChange
    conditions: Conditions
    properties: Properties
    repeated: bool
    row: Row = field(init=False)
    _digest: str | None = field(init=False, default=None)
    stamps: set[int] = field(init=False, factory=set)
    outcome: Outcome | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.stamp(self.change)

    def stamp(self, change: RetainedChange) -> None:
        """Take the same change with another revision. Raises ValueError if it cannot be a PUBLISH packet."""
        row = row_of(change)
        if row.tombstone:
            row = row._replace(properties5=encode_properties(self.properties))
        self.change = change
        self.row = row
        self.stamps.add(row.revision)

    @property
    def digest(self) -> str:
        """The digest of the new payload. Computed in the writer's thread, since a payload may be long."""
        if self._digest is None:
            self._digest = sha256(self.row.payload).hexdigest()
        return self._digest

    @property
    def needs_digest(self) -> bool:
        """Whether the decision needs the digest of the present payload."""
        return self.repeated or self.conditions.payload_sha256 is not None


# The decision about a conditional change: a function of the change and of the present row.


@frozen
class Present:
    """The present row of a topic. ``digest`` is that of its payload, None if no decision needs it."""

    revision: int
    tombstone: int
    expires_at: int | None
    client_id: str | None
    qos: int
    properties5: bytes
    digest: str | None


def decide(change: ConditionalChange, present: Present | None) -> Outcome:
    """Decide about a change. An expired message and a tombstone are no message.

    A repetition whose change is the present one has succeeded before: its condition does not hold any more.
    """
    message = present
    if present is not None and (present.tombstone or has_expired(present.expires_at, change.change.changed_at)):
        message = None
    revision = 0 if message is None else message.revision
    if present is not None and (present.revision in change.stamps or (change.repeated and _is_same(change, present))):
        verdict = Verdict.STORED if present.revision in change.stamps else Verdict.PRESENT
        return Outcome(verdict, present.revision)
    conditions = change.conditions
    holds = (
        (conditions.revision is None or conditions.revision == revision)
        and (not conditions.absent or message is None)
        and (not conditions.present or message is not None)
        and (conditions.payload_sha256 is None or (message is not None and conditions.payload_sha256 == message.digest))
    )
    if not holds:
        return Outcome(Verdict.REFUSED, revision)
    if present is not None and present.revision >= change.row.revision:
        return Outcome(Verdict.OUTRUN, present.revision)
    return Outcome(Verdict.STORED, change.row.revision)


def _is_same(change: ConditionalChange, present: Present) -> bool:
    """Tell whether the present row is what this change writes, apart from times and the revision."""
    row = change.row
    return (
        (present.tombstone, present.client_id, present.qos, present.digest, present.properties5)
        == (row.tombstone, row.client_id, row.qos, change.digest, row.properties5)
    )  # fmt: skip
