"""The rows of ``authorization_rules``: reading all of them, and the transaction that changes some."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from holdfast.accounts.refusals import BadValue, Unknown
from holdfast.authorization.rule import Rule
from holdfast.authorization.sources.rule_fields import read_fields, rule_of
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.writing.bulk import Bulk

_ALL = "SELECT number, rule_json FROM authorization_rules ORDER BY position, number"
_PAGE = (
    "SELECT number, rule_json FROM authorization_rules WHERE position > "
    "coalesce((SELECT position FROM authorization_rules WHERE number = ?), 0) ORDER BY position, number LIMIT ?"
)
_IS_THERE = "SELECT count(*) FROM authorization_rules WHERE number = ?"
_STATE = "SELECT rules_version, last_number FROM access_state WHERE id = 1"
_RAISE = "UPDATE access_state SET rules_version = ?, last_number = ? WHERE id = 1 AND rules_version = ?"

#: Bytes of the JSON text of one rule.
LONGEST = 65536


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
    if len(rule.text) > LONGEST:
        raise BadValue(f"a rule has at most {LONGEST} bytes; write several rules, or give the users a group")
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
