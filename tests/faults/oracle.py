"""Tells whether a database has the right contents after an interruption, and whether its tables agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from holdfast.core.messages import STORED_ENTRY
from holdfast.core.topics import matches
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from tests.faults.workload import FILTER, Key

#: the column that is compared as the value of a row, by table
_VALUES = {
    "sessions": "client_id",
    "session_subscriptions": "topic_filter",
    "session_messages": "topic",
    "session_received": "packet_identifier",
    "wills": "topic",
}


@define
class Facts:
    """The intended changes by key, in their order, and the numbers of the stored ones."""

    values: dict[Key, list[tuple[int, Any]]] = field(factory=dict)
    stored: set[int] = field(factory=set)

    def note(self, number: int, key: Key | None, value: Any) -> None:
        """Note an intended change, or that it is stored (see :class:`tests.faults.workload.Workload`)."""
        if key is None:
            self.stored.add(number)
        else:
            self.values.setdefault(tuple(key), []).append((number, value))

    def possible(self, key: Key) -> list[Any]:
        """Return the values that a key may have: the value stored last, and all values intended later."""
        noted = self.values[key]
        last = max((index for index, (number, _) in enumerate(noted) if number in self.stored), default=None)
        values = [value for _, value in noted]
        return [None, *values] if last is None else values[last:]


_LIVE = "SELECT topic, payload, client_id, size, levels, properties5 FROM retained WHERE tombstone = 0 ORDER BY topic"
_TOTALS = "SELECT coalesce(sum(retained_count), 0), coalesce(sum(retained_bytes), 0) FROM nodes"
_LEVELS = "SELECT levels FROM retained_levels"
_USAGE = "SELECT scope, subject, messages, bytes, counted_to FROM retained_usage"
_ENTRIES = "SELECT topic, op, payload, revision, origin FROM retained_history ORDER BY seq"
_STATE = "SELECT last_seq, (SELECT coalesce(max(seq), 0) FROM retained_history) FROM retained_history_state"
_DANGLING = (
    "SELECT count(*) FROM session_deliveries WHERE message_id NOT IN (SELECT id FROM session_messages) "
    "OR session_id NOT IN (SELECT id FROM sessions)"
)
_STATEMENTS = (_LIVE, _TOTALS, _LEVELS, _USAGE, _ENTRIES, _STATE, _DANGLING)


def examine(url: str, facts: Facts) -> list[str]:
    """Return all errors of a database."""
    database = database_at(url, Durability.FULL)
    connection = database.connect_reader()
    try:
        cursor = connection.cursor()
        found = {}
        for statement in _STATEMENTS:
            cursor.execute(statement)
            found[statement] = list(cursor.fetchall())
        wrong = [
            f"{key}: found {value!r}, possible {possible!r}"
            for key in facts.values
            if (value := _value(cursor, key)) not in (possible := facts.possible(key))
        ]
    finally:
        connection.close()
    damages = database.find_damage()
    wrong += [f"{check}: {line}" for check, lines in damages.items() for line in lines]
    return wrong + _disagreements(found)


def _value(cursor: Any, key: Key) -> Any:
    table, *where = key
    if table == "retained":
        cursor.execute("SELECT payload FROM retained WHERE topic = ? AND tombstone = 0", (where[0],))
        row = cursor.fetchone()
        return None if row is None else bytes(row[0]).decode()
    cursor.execute(f"SELECT {_VALUES[table]} FROM {table} WHERE {where[0]} = ?", (where[1],))
    row = cursor.fetchone()
    return None if row is None else row[0]


def _disagreements(found: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[str]:
    """Return the disagreements between the tables of the database."""
    wrong: list[str] = []
    live = found[_LIVE]
    if found[_TOTALS] != [(len(live), sum(map(_counted, live)))]:
        wrong.append(f"totals are {found[_TOTALS]}, but {len(live)} messages are retained")
    if not {row[4] for row in live} <= {levels for (levels,) in found[_LEVELS]}:
        wrong.append("a number of topic levels is missing")
    newest = {topic: (op, bytes(payload)) for topic, op, payload, *_ in found[_ENTRIES]}
    recorded = {topic: payload for topic, (op, payload) in newest.items() if op == "set"}
    if recorded != {row[0]: bytes(row[1]) for row in live}:
        wrong.append("the history does not agree with the retained messages")
    changes = [(topic, op, *change) for topic, op, _, *change in found[_ENTRIES]]
    if len(set(changes)) != len(changes):
        wrong.append("a change is recorded twice")
    ((last, highest),) = found[_STATE]
    if last < highest:
        wrong.append("the history's state is behind its entries")
    if found[_DANGLING] != [(0,)]:
        wrong.append("a delivery lacks its message or its Session")
    return wrong + _miscounted(live, found[_USAGE])


def _counted(row: tuple[Any, ...]) -> int:
    """Return the bytes of a message that totals and quotas count."""
    return len(row[0].encode()) + len(bytes(row[5])) + int(row[3]) + STORED_ENTRY


def _miscounted(live: Sequence[tuple[Any, ...]], usage: Sequence[tuple[Any, ...]]) -> list[str]:
    wrong: list[str] = []
    complete = {scope for scope, subject, _, _, counted_to in usage if not subject and counted_to is None}
    if FILTER in complete:
        inside = [row for row in live if matches(FILTER, row[0])]
        (counted,) = [row[2:4] for row in usage if row[0] == FILTER]
        if tuple(counted) != (len(inside), sum(map(_counted, inside))):
            wrong.append(f"the quota of {FILTER} counts {counted}, but {len(inside)} messages are retained")
    if "" in complete:
        clients = {row[1]: row[2] for row in usage if not row[0] and row[1] and row[2]}
        there: dict[str, int] = {}
        for row in live:
            there[row[2]] = there.get(row[2], 0) + 1
        if clients != there:
            wrong.append(f"the quotas of Clients count {clients}, but {there} messages are retained")
    return wrong
