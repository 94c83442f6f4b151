"""The table of usage: how many messages and bytes each quota has, kept exact by every change.

How it works
------------
A *scope* is a Topic Filter with a quota, the topics of a policy with a quota (:mod:`holdfast.retained.policies`), all
Clients (the scope ``""``, with one row for each Client as *subject*), or all payers (:mod:`holdfast.core.clients`;
``#users`` if User Names are proven, ``#clients`` otherwise). When an operator configures a new quota, its topics are
counted once, some thousand topics in each transaction; ``counted_to`` is the last counted topic, None when all are
counted. Meanwhile messages come and go. A change of a topic up to ``counted_to`` corrects the sum; a later topic is
left to the count.

Example: the quota on ``site/#`` has counted to ``site/4``. A new message of ``site/2`` adds 1 and its bytes. A new
message of ``site/7`` adds nothing: the count will find it later.

All methods run in the writer's thread, inside its transactions. A topic without a quota costs a look-up in memory, and
without quotas they cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from holdfast.core.clients import payers_of
from holdfast.core.topics import TopicTree
from holdfast.retained.policies import NO_COUNTED_POLICIES, ICountedPolicies
from holdfast.retained.store.statements import Statements
from holdfast.retained.store.values import NO_USAGE, Usage
from holdfast.retained.store.wildcards import KeyRange, plan
from holdfast.storage.driver import Cursor

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
_BEGIN_ANEW = (
    "INSERT INTO retained_usage VALUES (?, '', 0, 0, '') ON CONFLICT (scope, subject) DO UPDATE SET "
    "messages = 0, bytes = 0, counted_to = ''"
)
_DELETE_SUBJECTS = "DELETE FROM retained_usage WHERE scope = ? AND subject <> ''"
_READ = "SELECT messages, bytes FROM retained_usage WHERE scope = ? AND subject = ?"
_COUNTED_TO = "UPDATE retained_usage SET counted_to = ? WHERE scope = ? AND subject = ''"
_SCOPES = "SELECT DISTINCT scope FROM retained_usage"
_DELETE_SCOPE = "DELETE FROM retained_usage WHERE scope = ?"


@frozen
class Watched:
    """Topics before they change: the scopes of each, how far each scope is counted, and the usage of the topics."""

    scopes: Mapping[str, Sequence[str]] = field(factory=dict)
    counted: Mapping[str, str | None] = field(factory=dict)
    before: Mapping[str, Usage] = field(factory=dict)


_UNWATCHED = Watched()


class UsageTable:
    """Keeps the table ``retained_usage`` for Topic Filters and ``policies`` and, with ``clients``, for each Client.

    ``payers`` is the scope of payers to count, None for none.
    """

    def __init__(
        self,
        statements: Statements,
        topic_filters: Sequence[str] = (),
        clients: bool = False,
        payers: str | None = None,
        policies: ICountedPolicies = NO_COUNTED_POLICIES,
    ) -> None:
        self._statements = statements
        self._payers = payers
        self._use(topic_filters, clients, policies)

    def _use(self, topic_filters: Sequence[str], clients: bool, policies: ICountedPolicies) -> None:
        self._of_all = ([CLIENTS] if clients else []) + ([] if self._payers is None else [self._payers])
        self._filters: TopicTree[str, None] = TopicTree()
        for topic_filter in topic_filters:
            self._filters.add(topic_filter, topic_filter, None)
        self._policies = policies
        self.scopes = [*dict.fromkeys(topic_filters), *self._of_all, *policies.counted_filters]

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

    def count_quotas(
        self, cursor: Cursor, topic_filters: Sequence[str], clients: bool, policies: ICountedPolicies
    ) -> None:
        """Count for other quotas from now on; those of payers stay. Topics of the same scopes stay counted.

        A new scope is counted from its beginning, also if another node of the database counts it already: until now,
        this node did not add its changes. If a statement fails, nothing has changed.
        """
        other = UsageTable(self._statements, topic_filters, clients, self._payers, policies)
        for scope in sorted(frozenset(other.scopes) - frozenset(self.scopes)):
            cursor.execute(_BEGIN_ANEW, (scope,))  # it locks the scope, so other nodes wait with their changes
            cursor.execute(_DELETE_SUBJECTS, (scope,))
        other.begin(cursor)
        self._use(topic_filters, clients, policies)

    def watch(self, cursor: Cursor, topics: Sequence[str]) -> Watched:
        """Return the state before topics change."""
        if not self.scopes:
            return _UNWATCHED
        scopes = {topic: found for topic in topics if (found := self._scopes_of(topic))}
        if not scopes:
            return _UNWATCHED
        counted = self._statements.counted(cursor, sorted({scope for found in scopes.values() for scope in found}))
        return Watched(scopes, counted, self._statements.usage_of(cursor, list(scopes)))

    def change(self, cursor: Cursor, watched: Watched) -> None:
        """Add the difference between the topics before, as ``watched``, and now."""
        counted = watched.counted
        if not counted:
            return
        after = self._statements.usage_of(cursor, list(watched.scopes))
        changes: dict[tuple[str, str], tuple[int, int]] = {}
        for sign, usages in ((-1, watched.before), (1, after)):
            for topic, usage in usages.items():
                for scope in watched.scopes[topic]:
                    # The count will find later topics itself; counting them here would count them twice.
                    if scope in counted and ((upto := counted[scope]) is None or topic <= upto):
                        _add(changes, scope, usage, sign)
        _write(cursor, changes)

    def _scopes_of(self, topic: str) -> list[str]:
        """Return the scopes that a topic counts in."""
        scopes = [*self._of_all]
        if self._filters:
            scopes += [scope for scope, _ in self._filters.match(topic)]
        policy = self._policies.scope_of(topic)
        if policy is not None:
            scopes.append(policy)
        return scopes

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
        rest = _rest(self._policies.counted_filters.get(scope, scope), counted_to)
        usages = {} if rest is None else self._statements.usage_between(cursor, rest.low, rest.high, limit)
        changes: dict[tuple[str, str], tuple[int, int]] = {}
        for topic, usage in usages.items():
            if scope in self._scopes_of(topic):
                _add(changes, scope, usage, 1)
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


def _add(changes: dict[tuple[str, str], tuple[int, int]], scope: str, usage: Usage, sign: int) -> None:
    for subject in _charged(scope, usage):
        messages, sizes = changes.get((scope, subject), (0, 0))
        changes[scope, subject] = messages + sign, sizes + sign * usage.bytes


def _charged(scope: str, usage: Usage) -> Iterable[str]:
    if scope == CLIENTS:
        return (usage.client_id,) if usage.client_id else ()
    if scope in _ALL_TOPICS:
        return payers_of(usage.username, usage.client_id, scope == USERS)
    return ("",)


def _write(cursor: Cursor, changes: Mapping[tuple[str, str], tuple[int, int]]) -> None:
    # Sorted, so that two nodes lock the same rows in the same order.
    for (scope, subject), (messages, size) in sorted(changes.items()):
        if messages or size:
            cursor.execute(_ADD, (scope, subject, messages, size))
            if (
                messages < 0 and subject
            ):  # a Client or payer without messages needs no row; a Topic Filter keeps its row
                cursor.execute(_DELETE_EMPTY, (scope, subject))
