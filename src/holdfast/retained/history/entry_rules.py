"""The rules that tell a topic's retained message from its entries; the broker and the pipeline share them.

Each rule is written once, here, as a Python function or as SQL text. The broker's databases and Spark both understand
the SQL. An example, with revisions cut to their time::

    seq  topic  op      origin    changed_at  expires_at  revision
      7  a      set     baseline       9_000        NULL     5_000
      8  b      set     publish        9_500      10_000     9_500
      9  a      set     override       9_900      12_000     5_000

At 11_000 topic ``a`` has a retained message, and it was stored at 5_000: entries 7 and 9 were written later than the
message, so ``changed_at`` is not its time. Topic ``b`` has none, because its message expired at 10_000.
"""

from __future__ import annotations

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.storage.revisions import time_of

#: The origins of entries that are written for a message that was stored before: their revision tells when.
STORED_BEFORE = (ChangeOrigin.BASELINE, ChangeOrigin.OVERRIDE)

_STORED_BEFORE_SQL = ", ".join(f"'{origin.value}'" for origin in STORED_BEFORE)


def stored_at_of(origin: ChangeOrigin, changed_at: int, revision: int) -> int:
    """Return when the message of a "set" entry was stored, in milliseconds since the epoch."""
    return time_of(revision) if origin in STORED_BEFORE else changed_at


def stored_at_sql(revision_time: str) -> str:
    """Return :func:`stored_at_of` as SQL; ``revision_time`` is the SQL for the time in the column ``revision``."""
    return f"CASE WHEN origin IN ({_STORED_BEFORE_SQL}) THEN {revision_time} ELSE changed_at END"


def retained_sql(at: str) -> str:
    """Return the SQL that tells whether an entry's message was still retained at a time; ``at`` is SQL too.

    The entry must be the newest of its topic at that time.
    """
    return f"(op = '{ChangeKind.SET.value}' AND (expires_at IS NULL OR expires_at > {at}))"
