"""The decision about a conditional change: a function of the change and of the present row."""

from __future__ import annotations

from attrs import frozen

from holdfast.retained.store.conditional.change import ConditionalChange, Outcome, Verdict


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
    if present is not None and (present.tombstone or _has_expired(present, change.change.changed_at)):
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


def _has_expired(present: Present, now: int) -> bool:
    return present.expires_at is not None and present.expires_at <= now


def _is_same(change: ConditionalChange, present: Present) -> bool:
    """Tell whether the present row is what this change writes, apart from times and the revision."""
    row = change.row
    return (
        (present.tombstone, present.client_id, present.qos, present.digest, present.properties5)
        == (row.tombstone, row.client_id, row.qos, change.digest, row.properties5)
    )  # fmt: skip
