"""The API about rules in the database. A rule has the keys of a table [[rule]] in a rule file, and a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred

from holdfast.admin.arguments import INTEGER, digits_of, number_of, object_of, page, record, whole
from holdfast.admin.call import DONE, Answer, Call, Refusals, Scope, answer, bad_request, not_found, unavailable
from holdfast.admin.routing import NOTHING, Content, Route, in_path, query, routes_of
from holdfast.identity.accounts import BadValue, Contended, Unknown
from holdfast.identity.database_rules import Rules, StoredRule

RULES_PREFIX = "/api/v5/rules"

#: bytes of the longest rule: a few topics of the longest kind fit
_MOST_BYTES = 1 << 18
_EXAMPLE = '{"groups": ["sensors"], "action": ["publish"], "topics": ["plant/%u/#"], "allow": true}'
_HIGHEST = 10**18 - 1
_PAGE, _MOST = 200, 1000
_RULE = record({"number": INTEGER})
_REFUSALS: Refusals = {
    BadValue: lambda error: bad_request(str(error)),
    Unknown: lambda error: not_found(str(error)),
    Contended: lambda error: unavailable(str(error)),
}


_NUMBER = in_path("number", whole(1, _HIGHEST), "the number of the rule")
_BEFORE = query("before", whole(1, _HIGHEST), "the number of the rule that follows; without it, the last place")


class RuleAPI:
    """Lists, adds, moves and removes rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.routes = routes_of(self)

    @Route(
        method="POST",
        path=RULES_PREFIX,
        scope=Scope.ADMIN,
        stores=True,
        summary="Add a rule, with the keys of a table [[rule]] in a rule file",
        parameters=(_BEFORE,),
        body=Content({"type": "object"}, "the rule", most_bytes=_MOST_BYTES),
        answers={200: Content(_RULE, "the rule")},
        refusals=_REFUSALS,
        finishes=True,
    )
    def add(self, call: Call) -> Deferred[Answer]:
        """Add a rule."""
        fields = object_of(call, _EXAMPLE)
        return self._rules.add(fields, _before(call)).addCallback(_answered)

    @Route(
        method="PUT",
        path=f"{RULES_PREFIX}/{{number}}",
        scope=Scope.ADMIN,
        stores=True,
        summary="Move a rule",
        parameters=(_NUMBER, _BEFORE),
        answers={200: Content(_RULE, "the rule")},
        refusals=_REFUSALS,
        finishes=True,
    )
    def move(self, call: Call) -> Deferred[Answer]:
        """Move a rule."""
        return self._rules.move(_number(call), _before(call)).addCallback(_answered)

    @Route(
        method="DELETE",
        path=f"{RULES_PREFIX}/{{number}}",
        scope=Scope.ADMIN,
        stores=True,
        summary="Remove a rule",
        parameters=(_NUMBER,),
        answers={204: NOTHING},
        refusals=_REFUSALS,
        finishes=True,
    )
    def remove(self, call: Call) -> Deferred[Answer]:
        """Remove a rule."""
        removed = self._rules.remove(_number(call))
        return removed.addCallback(lambda rule: Answer(DONE.status, note=_note(rule)))

    @Route(
        method="GET",
        path=RULES_PREFIX,
        scope=Scope.READ,
        summary="List a page of the rules in the database, in their order",
        parameters=(
            query("limit", whole(1, _MOST, _PAGE), "the most rules of a page"),
            query("cursor", whole(1, _HIGHEST), "where to go on: meta.cursor of the answer before"),
        ),
        answers={200: Content(page(_RULE), "the page")},
        refusals=_REFUSALS,
    )
    def list_rules(self, call: Call) -> Deferred[Answer]:
        """List a page of rules in their order."""
        most = number_of(call.arguments, "limit", _PAGE, _MOST)
        after = number_of(call.arguments, "cursor", 0, _HIGHEST)

        def shown(found: list[tuple[int, Mapping[str, Any]]]) -> Answer:
            more = {"cursor": str(found[-1][0])} if len(found) == most else {}
            meta = {"limit": most, **more}
            return answer({"data": [{"number": number, **fields} for number, fields in found], "meta": meta})

        return self._rules.page(after, most).addCallback(shown)


def _before(call: Call) -> int | None:
    """Return the number of the rule before which the rule gets its place; None is the end."""
    return number_of(call.arguments, "before", 0, _HIGHEST) or None


def _number(call: Call) -> int:
    number = digits_of(call.arguments["number"])
    if number is None:
        allowed = "a whole number, as in the list"
        raise bad_request(f"the number of a rule is {allowed}", "number", allowed)
    return number


def _shown(rule: StoredRule) -> dict[str, Any]:
    return {"number": rule.number, **rule.fields}


def _note(rule: StoredRule) -> dict[str, object]:
    return {"number": rule.number, "rule": str(rule.rule)}


def _answered(rule: StoredRule) -> Answer:
    return answer(_shown(rule), note=_note(rule))
