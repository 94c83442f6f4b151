"""The table of usage: how many messages and bytes each quota has, kept exact by every change.

How it works
------------
A *scope* is a Topic Filter with a quota, all Clients (the scope ``""``, with one row for each Client as *subject*), or
all payers (:mod:`holdfast.charging`; ``#users`` if User Names are proven, ``#clients`` otherwise). When an operator
configures a new quota, its topics are counted once, some thousand topics in each
transaction; ``counted_to`` is the last counted topic, None when all are counted. Meanwhile messages come and go. A
change of a topic up to ``counted_to`` corrects the sum; a later topic is left to the count.

Example: the quota on ``site/#`` has counted to ``site/4``. A new message of ``site/2`` adds 1 and its bytes. A new
message of ``site/7`` adds nothing: the count will find it later.

All methods run in the writer's thread, inside its transactions. Without quotas they cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.charging import payers_of
from holdfast.retained.store.dialects.statements import Statements
from holdfast.retained.store.values import NO_USAGE, Usage
from holdfast.retained.wildcards.plan import KeyRange, plan
from holdfast.storage.driver import Cursor
from holdfast.topics import matches

#: The scope whose subjects are Clients.
CLIENTS = ""
#: The scopes whose subjects are payers: where User Names are proven, and where they are not. They are no Topic Filters.
USERS, GUESTS_ONLY = "#users", "#clients"
_ALL_TOPICS = frozenset((CLIENTS, USERS, GUESTS_ONLY))

_ADD = (
    "INSERT INTO retained_usage VALUES (?, ?, ?, ?, NULL) ON CONFLICT (scope, subject) DO UPDATE SET "
    "messages = retained_usage.messages + excluded.messages, bytes = retained_usage.bytes + excluded.bytes"
)
_DELETE_EMPTY = "DELETE FROM retained_usage WHERE scope = ? AND subject = ? AND subject <> '' AND messages = 0"
_BEGIN = "INSERT INTO retained_usage VALUES (?, '', 0, 0, '') ON CONFLICT (scope, subject) DO NOTHING"
_READ = "SELECT messages, bytes FROM retained_usage WHERE scope = ? AND subject = ?"
_COUNTED_TO = "UPDATE retained_usage SET counted_to = ? WHERE scope = ? AND subject = ''"
_SCOPES = "SELECT DISTINCT scope FROM retained_usage"
_DELETE_SCOPE = "DELETE FROM retained_usage WHERE scope = ?"


class UsageTable:
    """Keeps the table ``retained_usage`` for Topic Filters and, with ``clients``, for each Client.

    ``payers`` is the scope of payers to count, None for none.
    """

    def __init__(
        self,
        statements: Statements,
        topic_filters: Sequence[str] = (),
        clients: bool = False,
        payers: str | None = None,
    ) -> None:
        self._statements = statements
        self.scopes = list(topic_filters)
        if clients:
            self.scopes.append(CLIENTS)
        if payers is not None:
            self.scopes.append(payers)
        self._payers = payers

    def is_empty(self, cursor: Cursor) -> bool:
        """Tell whether the table has no scopes."""
        cursor.execute(_SCOPES + " LIMIT 1")
        return cursor.fetchone() is None

    def begin(self, cursor: Cursor) -> None:
        """Prepare the table for these scopes; delete scopes that have no quota any more."""
        cursor.execute(_SCOPES)
        for (scope,) in cursor.fetchall():
            if scope not in self.scopes:
                cursor.execute(_DELETE_SCOPE, (scope,))
        # A scope that has a row already stays: its count is still exact.
        for scope in sorted(self.scopes):
            cursor.execute(_BEGIN, (scope,))

    def watch(self, cursor: Cursor, topics: Sequence[str]) -> tuple[dict[str, str | None], dict[str, Usage]]:
        """Return the state before topics change: how far each scope is counted, and the usage of the topics."""
        if not self.scopes:
            return {}, {}
        counted = self._statements.counted(cursor, self.scopes)
        return counted, self._statements.usage_of(cursor, topics)

    def change(
        self, cursor: Cursor, watched: tuple[dict[str, str | None], dict[str, Usage]], topics: Sequence[str]
    ) -> None:
        """Add the difference between the topics before, as ``watched``, and now."""
        counted, before = watched
        if not counted:
            return
        after = self._statements.usage_of(cursor, topics)
        changes: dict[tuple[str, str], tuple[int, int]] = {}
        for sign, usages in ((-1, before), (1, after)):
            for scope, counted_to in counted.items():
                # The count will find later topics itself; counting them here would count them twice.
                known = (
                    usages if counted_to is None else {topic: usages[topic] for topic in usages if topic <= counted_to}
                )
                _add(changes, scope, known, sign)
        _write(cursor, changes)

    def read(self, cursor: Cursor, scope: str, subject: str = "") -> Usage:
        """Return the usage of a subject of a scope."""
        cursor.execute(_READ, (scope, subject))
        row = cursor.fetchone()
        return NO_USAGE if row is None else Usage(*row)

    def read_payer(self, cursor: Cursor, payer: str) -> Usage:
        """Return the usage of a payer, if payers are counted."""
        return NO_USAGE if self._payers is None else self.read(cursor, self._payers, payer)

    def count(self, cursor: Cursor, limit: int) -> bool:
        """Count the next ``limit`` topics of a scope that is not fully counted; tell whether there was one."""
        counted = self._statements.counted(cursor, self.scopes)
        for scope, counted_to in counted.items():
            if counted_to is not None:
                self._count(cursor, scope, counted_to, limit)
                return True
        return False

    def _count(self, cursor: Cursor, scope: str, counted_to: str, limit: int) -> None:
        rest = _rest(scope, counted_to)
        usages = {} if rest is None else self._statements.usage_between(cursor, rest.low, rest.high, limit)
        changes: dict[tuple[str, str], tuple[int, int]] = {}
        _add(changes, scope, usages, 1)
        _write(cursor, changes)
        if rest is None:
            reached = None
        elif len(usages) < limit:  # the range has no more topics: continue behind it
            reached = rest.high
        else:
            reached = max(usages)
        cursor.execute(_COUNTED_TO, (reached, scope))


def _rest(scope: str, counted_to: str) -> KeyRange | None:
    """Return the rest, after ``counted_to``, of the first range that has one."""
    ranges: Sequence[KeyRange] = (KeyRange("", None),) if scope in _ALL_TOPICS else plan(scope).ranges
    for one in ranges:
        rest = one.after(counted_to) if counted_to else one
        if rest is not None:
            return rest
    return None


def _add(changes: dict[tuple[str, str], tuple[int, int]], scope: str, usages: Mapping[str, Usage], sign: int) -> None:
    for subject, size in _charged(scope, usages):
        messages, sizes = changes.get((scope, subject), (0, 0))
        changes[scope, subject] = messages + sign, sizes + sign * size


def _charged(scope: str, usages: Mapping[str, Usage]) -> Iterator[tuple[str, int]]:
    for topic, usage in usages.items():
        if scope == CLIENTS:
            if usage.client_id:
                yield usage.client_id, usage.bytes
        elif scope in _ALL_TOPICS:
            for payer in payers_of(usage.username, usage.client_id, scope == USERS):
                yield payer, usage.bytes
        elif matches(scope, topic):
            yield "", usage.bytes


def _write(cursor: Cursor, changes: Mapping[tuple[str, str], tuple[int, int]]) -> None:
    # Sorted, so that two nodes lock the same rows in the same order.
    for (scope, subject), (messages, size) in sorted(changes.items()):
        if messages or size:
            cursor.execute(_ADD, (scope, subject, messages, size))
            if (
                messages < 0 and subject
            ):  # a Client or payer without messages needs no row; a Topic Filter keeps its row
                cursor.execute(_DELETE_EMPTY, (scope, subject))
