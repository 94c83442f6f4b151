"""The rules in the database: kept in memory, changed through the writer, and compiled with those of files.

How it works. A change is made of the rules in memory, compiled with all sources in a thread, and committed if the
database still has the version that memory has. So rules that cannot be compiled are never stored, and of two nodes that
change rules at once, the second one reads the first one's and tries again. After the commit, the authorizer decides by
the new rules, and what they do not allow any more ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.identity.accounts import LOST, BadValue, Contended, Unknown, read, read_now, write
from holdfast.identity.authorizer import Authorizer, PresentAuthorizer
from holdfast.identity.rule_files import read_fields, rule_of
from holdfast.identity.rule_sources import Sources, unknown_listeners
from holdfast.identity.rules import Rule, Ruleset, TooManyFilters
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage import layouts
from holdfast.storage.driver import Bulk, Connection
from holdfast.storage.location import StoreUnusable
from holdfast.storage.store import DurableStore, OpenStore

# The rows of ``authorization_rules``: reading all of them, and the transaction that changes some.


_ALL = "SELECT number, rule_json FROM authorization_rules ORDER BY position, number"
_PAGE = (
    "SELECT number, rule_json FROM authorization_rules WHERE position > "
    "coalesce((SELECT position FROM authorization_rules WHERE number = ?), 0) ORDER BY position, number LIMIT ?"
)
_IS_THERE = "SELECT count(*) FROM authorization_rules WHERE number = ?"
_STATE = "SELECT rules_version, last_number FROM access_state WHERE id = 1"
_RAISE = "UPDATE access_state SET rules_version = ?, last_number = ? WHERE id = 1 AND rules_version = ?"

#: Bytes of the JSON text of one rule.
LONGEST_RULE = 65536


@frozen
class StoredRule:
    """A rule in the database. ``fields`` are the keys and values as in a rule file."""

    number: int
    fields: Mapping[str, Any]
    rule: Rule

    @property
    def text(self) -> str:
        """The fields as JSON."""
        return json.dumps(self.fields)


@frozen
class AllRules:
    """The rules of a version, in their order, and the highest number that was ever used."""

    version: int = 0
    last_number: int = 0
    rules: tuple[StoredRule, ...] = ()


def rules_in(known: AllRules) -> tuple[Rule, ...]:
    """Return the rules in their order."""
    return tuple(each.rule for each in known.rules)


def stored_rule(number: int, fields: Mapping[str, Any]) -> StoredRule:
    """Return a rule with these keys and values. Raises BadValue with all problems."""
    found, problems = read_fields(fields)
    if problems:
        raise BadValue("; ".join(f"{key}: {message}" if key else f"the rule {message}" for key, message in problems))
    rule = StoredRule(number, fields, rule_of(found, f"rule {number} of the database"))
    if len(rule.text) > LONGEST_RULE:
        raise BadValue(f"a rule has at most {LONGEST_RULE} bytes; write several rules, or give the users a group")
    return rule


def read_all(connection: Connection) -> AllRules:
    """Return all rules. Raises StoreUnusable if one of them is none that the broker writes."""
    cursor = connection.cursor()
    cursor.execute(_STATE)
    ((version, last_number),) = cursor.fetchall()
    cursor.execute(_ALL)
    return AllRules(version, last_number, tuple(_read(number, text) for number, text in cursor.fetchall()))


def read_page(connection: Connection, after: int, most: int) -> list[tuple[int, Mapping[str, Any]]]:
    """Return rules in their order as numbers and fields, after the rule with a number; 0 is the beginning.

    Raises Unknown if there is no rule with this number any more.
    """
    cursor = connection.cursor()
    cursor.execute(_IS_THERE, (after,))
    if after and not cursor.fetchall()[0][0]:
        raise Unknown(f"rule {after} has been removed meanwhile; begin again without a cursor")
    cursor = connection.cursor()
    cursor.execute(_PAGE, (after, most))
    return [(number, _fields(number, text)) for number, text in cursor.fetchall()]


def replace(connection: Connection, bulk: Bulk, before: AllRules, after: AllRules, now: int) -> bool:
    """Change the rows to other rules; False, and no change, if the database has another version than ``before``."""
    cursor = connection.cursor()
    cursor.execute(_RAISE, (after.version, after.last_number, before.version))
    if not cursor.rowcount:
        return False
    places = {each.number: (place, each) for place, each in enumerate(before.rules, 1)}
    kept = {each.number for each in after.rules}
    bulk.delete(
        cursor, layouts.authorization_rules, ("number",), [(number,) for number in places if number not in kept]
    )
    rows = [
        (each.number, place, each.text, now)
        for place, each in enumerate(after.rules, 1)
        if places.get(each.number) != (place, each)
    ]
    bulk.upsert(cursor, layouts.authorization_rules, rows)
    return True


def _read(number: int, text: str) -> StoredRule:
    try:
        return stored_rule(number, _fields(number, text))
    except BadValue as error:
        raise _unusable(number, str(error)) from None


def _fields(number: int, text: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise _unusable(number, "it is no JSON object")
    return fields


def _unusable(number: int, why: str) -> StoreUnusable:
    return StoreUnusable(
        f"rule {number} of the database cannot be used: {why}; correct or delete its row in the table"
        " authorization_rules"
    )


#: the most rules in the database
MOST_RULES = 10_000
_ATTEMPTS = 5

#: makes other rules of the present ones
_Edit = Callable[[AllRules], AllRules]


class Rules:
    """The rules in the database.

    ``sources`` returns the configured sources, whose files it may have to read (ConfigError). Without a ``present``
    authorizer, nothing is kept and decided here, as in a command. ``now`` returns milliseconds since the epoch.
    ``in_thread`` calls a function that takes tenths of a second.
    """

    _log = Logger()

    def __init__(
        self,
        store: DurableStore,
        *,
        sources: Callable[[], Sources],
        present: PresentAuthorizer | None,
        now: Callable[[], int],
        in_thread: Callable[..., Deferred[Any]] = deferToThread,
    ) -> None:
        self._store = store
        self._sources = sources
        self._present = present
        self._now = now
        self._in_thread = in_thread
        self._lock = DeferredLock()
        #: the rules in memory; None if they are not known
        self.known: AllRules | None = None
        #: why they are not known
        self.problem = "the database is not open"
        store.when_open(self._opened)

    @property
    def kept(self) -> bool:
        """Whether rules are kept in memory."""
        return self._present is not None

    @property
    def version(self) -> int:
        """The version of the rules in memory."""
        return 0 if self.known is None else self.known.version

    def page(self, after: int, most: int) -> Deferred[list[tuple[int, Mapping[str, Any]]]]:
        """Read rules in their order as numbers and fields, after the rule with a number; 0 is the beginning.

        Fails with Unknown, StorageFailure or StoreUnusable.
        """
        return read(self._store, lambda connection: read_page(connection, after, most))

    def add(self, fields: Mapping[str, Any], before: int | None) -> Deferred[StoredRule]:
        """Add a rule before the one with a number, or as the last one; fires when it is durable and decides.

        Fails with BadValue, Unknown, Contended, ConfigError, StorageFailure or StoreUnusable.
        """
        for message in unknown_listeners(stored_rule(0, fields).rule, self._sources().listeners):
            raise BadValue(message)

        def edit(known: AllRules) -> AllRules:
            if len(known.rules) >= MOST_RULES:
                raise BadValue(f"the database has {MOST_RULES} rules, and cannot have more; use groups, %u and %c")
            number = known.last_number + 1
            return _inserted(evolve(known, last_number=number), stored_rule(number, fields), before)

        return self._change(edit).addCallback(lambda known: _rule(known, known.last_number))

    def move(self, number: int, before: int | None) -> Deferred[StoredRule]:
        """Move a rule before another one, or to the end. Fires and fails as :meth:`add` does."""

        def edit(known: AllRules) -> AllRules:
            moved = _rule(known, number)
            return known if before == number else _inserted(_without(known, number), moved, before)

        return self._change(edit).addCallback(lambda known: _rule(known, number))

    def remove(self, number: int) -> Deferred[StoredRule]:
        """Remove a rule, which is returned. Fires and fails as :meth:`add` does."""
        removed: list[StoredRule] = []

        def edit(known: AllRules) -> AllRules:
            removed[:] = [_rule(known, number)]
            return _without(known, number)

        return self._change(edit).addCallback(lambda _: removed[0])

    # --- other nodes, and other sources

    def refresh(self) -> Deferred[None]:
        """Read the rules again, which another node has changed, and decide by them. Fails as :meth:`add` does."""
        return self._lock.run(self._refresh)

    def use(self, sources: Sources, known: AllRules | None) -> None:
        """Take other sources, by which the present authorizer decides already, with the rules that were ``known``.

        If the rules have changed meanwhile, the authorizer decides by them as soon as they are compiled.
        """
        self._sources = lambda: sources
        if self.known is not known and sources.has_database:
            self._lock.run(self._compile_again).addErrback(
                lambda failure: self._log.failure("rules in the database could not be compiled again", failure)
            )

    @as_deferred
    async def _compile_again(self) -> None:
        if self.known is not None:
            await self._decide_by(self.known)

    @as_deferred
    async def _refresh(self) -> None:
        known = await read(self._store, read_all)
        if self.known is None or known.version > self.version:
            await self._decide_by(known)
            self._log.info("rules in the database read again: {count}", count=len(known.rules))

    def _opened(self, parts: OpenStore) -> None:
        """Read the rules, and decide by them. Raises StoreUnusable: a missing rule could deny something."""
        if not self.kept:
            return
        sources = self._sources()
        try:
            known = read_now(parts.database, read_all)
            if known.version == LOST:
                raise StoreUnusable(
                    f"{parts.database.location}: the rules of what clients may do could not be read from the damaged"
                    " file; restore a backup, or add them again before the start, with: holdfast acl add"
                )
            ruleset = sources.compiled(rules_in(known)) if sources.has_database else None
        except StoreUnusable as error:
            if sources.has_database:
                raise
            self.problem = str(error)
            self._log.warn("rules in the database, which do not count: {error}", error=error)
        except TooManyFilters as error:
            raise StoreUnusable(f"{parts.database.location}: {error.rule.origin}: {error}") from None
        else:
            self._take(known, ruleset)

    # --- changes

    def _change(self, edit: _Edit) -> Deferred[AllRules]:
        return self._lock.run(self._changed, edit)

    @as_deferred
    async def _changed(self, edit: _Edit) -> AllRules:
        for _ in range(_ATTEMPTS):
            before = self.known
            if before is None:
                before = await read(self._store, read_all)
            after = evolve(edit(before), version=max(before.version, 0) + 1)
            sources = self._sources()
            ruleset = await self._compiled(sources, after)
            done = await write(self._store, self._replacing(before, after))
            if done:
                if self._sources() is not sources:
                    await self._decide_by(after)
                elif self.kept:
                    self._take(after, ruleset if sources.has_database else None)
                return after
            self.known = None  # another node was first
        raise Contended("other nodes changed the rules meanwhile, again and again; try it again")

    async def _decide_by(self, known: AllRules) -> None:
        """Compile these rules with the present sources, and decide by them."""
        while True:
            sources = self._sources()
            ruleset = None
            if sources.has_database:
                ruleset = await self._compiled(sources, known)
            if self._sources() is sources:
                break
        self._take(known, ruleset)

    def _replacing(self, before: AllRules, after: AllRules) -> Callable[[Connection], bool]:
        bulk, now = self._store.bulk, self._now()
        return lambda connection: replace(connection, bulk, before, after, now)

    def _compiled(self, sources: Sources, known: AllRules) -> Deferred[Ruleset]:
        return self._in_thread(sources.compiled, rules_in(known)).addErrback(_explained)

    def _take(self, known: AllRules, ruleset: Ruleset | None) -> None:
        self.known = known
        if ruleset is not None and self._present is not None and isinstance(self._present.authorizer, Authorizer):
            self._present.authorizer.replace(ruleset)


def _explained(failure: Failure) -> Any:
    if isinstance(failure.value, TooManyFilters):
        raise BadValue(f"{failure.value.rule.origin}: {failure.value}") from None
    return failure


def _rule(known: AllRules, number: int) -> StoredRule:
    return known.rules[_place(known.rules, number)]


def _place(rules: Sequence[StoredRule], number: int) -> int:
    for place, each in enumerate(rules):
        if each.number == number:
            return place
    raise Unknown(f"the database has no rule {number}")


def _without(known: AllRules, number: int) -> AllRules:
    return evolve(known, rules=tuple(each for each in known.rules if each.number != number))


def _inserted(known: AllRules, rule: StoredRule, before: int | None) -> AllRules:
    place = len(known.rules) if before is None else _place(known.rules, before)
    return evolve(known, rules=(*known.rules[:place], rule, *known.rules[place:]))
