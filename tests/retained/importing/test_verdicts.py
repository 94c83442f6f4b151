"""The verdict on an imported message: by the rule, by time, and by revision."""

from __future__ import annotations

import pytest
from attrs import frozen

from holdfast.retained.verdicts import Merge, Verdict, verdict_of

NOW = 1000


@frozen
class At:
    """A message or a clear."""

    stored_at: int
    revision: int = 1
    expires_at: int | None = None
    tombstone: int = 0


def judged(imported: At, present: At | None, merge: Merge, same: bool = False) -> Verdict:
    return verdict_of(imported, present, merge, NOW, same)


@pytest.mark.parametrize(
    ("merge", "older", "same_time", "newer"),
    [
        (Merge.NEWER, Verdict.KEPT, Verdict.KEPT, Verdict.IMPORTED),
        (Merge.REPLACE, Verdict.IMPORTED, Verdict.IMPORTED, Verdict.IMPORTED),
        (Merge.KEEP, Verdict.KEPT, Verdict.KEPT, Verdict.KEPT),
    ],
)
def test_the_rule_decides_between_two_messages(
    merge: Merge, older: Verdict, same_time: Verdict, newer: Verdict
) -> None:
    for stored_at, expected in ((499, older), (500, same_time), (501, newer)):
        assert judged(At(stored_at), At(500), merge) is expected


def test_of_messages_stored_at_the_same_time_the_higher_revision_prevails() -> None:
    assert judged(At(500, revision=3), At(500, revision=2), Merge.NEWER) is Verdict.IMPORTED
    assert judged(At(500, revision=1), At(500, revision=2), Merge.NEWER) is Verdict.KEPT


@pytest.mark.parametrize(
    ("merge", "before", "after"),
    [
        (Merge.NEWER, Verdict.CLEARED, Verdict.IMPORTED),
        (Merge.REPLACE, Verdict.IMPORTED, Verdict.IMPORTED),
        (Merge.KEEP, Verdict.IMPORTED, Verdict.IMPORTED),
    ],
)
def test_a_clear_prevails_over_an_earlier_message_with_newer_only(
    merge: Merge, before: Verdict, after: Verdict
) -> None:
    cleared = At(500, tombstone=1)
    assert judged(At(499), cleared, merge) is judged(At(500), cleared, merge) is before
    assert judged(At(501), cleared, merge) is after


@pytest.mark.parametrize("merge", list(Merge))
def test_an_expired_message_is_not_imported_and_never_prevails(merge: Merge) -> None:
    expired = At(500, expires_at=NOW)
    assert judged(expired, None, merge) is Verdict.EXPIRED
    assert judged(At(499), expired, merge) is Verdict.IMPORTED
    assert judged(At(500, expires_at=NOW + 1), None, merge) is Verdict.IMPORTED


@pytest.mark.parametrize("merge", list(Merge))
def test_the_same_message_is_unchanged_by_every_rule(merge: Merge) -> None:
    assert judged(At(500), At(500), merge, same=True) is Verdict.UNCHANGED
