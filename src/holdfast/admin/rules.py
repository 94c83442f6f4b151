"""The API about rules in the database. A rule has the keys of a table [[rule]] in a rule file, and a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.accounts.refusals import BadValue, Contended, Unknown
from holdfast.accounts.rule_rows import StoredRule
from holdfast.accounts.rules import Rules
from holdfast.admin.arguments import digits_of, number_of
from holdfast.admin.bodies import (
    check_arguments,
    not_allowed,
    object_of,
    refusal_of,
    rest_of,
    unavailable,
)
from holdfast.admin.calls import DONE, Answer, Call, answer, bad_request, not_found

RULES_PREFIX = "/api/v5/rules"

_EXAMPLE = '{"groups": ["sensors"], "action": ["publish"], "topics": ["plant/%u/#"], "allow": true}'
_HIGHEST = 10**18 - 1
_PAGE, _MOST = 200, 1000
_ARGUMENTS = {("GET", False): ("limit", "cursor"), ("POST", False): ("before",), ("PUT", True): ("before",)}


class RuleAPI:
    """Lists, adds, moves and removes rules."""

    _log = Logger()

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer a call. The Deferred fails only with CancelledError, if the caller cancels it."""
        return maybeDeferred(self._answer, call).addErrback(self._failed)

    def _answer(self, call: Call) -> Deferred[Answer]:
        names = rest_of(call, RULES_PREFIX)
        check_arguments(call, _ARGUMENTS.get((call.method, bool(names)), ()))
        before = number_of(call.arguments, "before", 0, _HIGHEST) or None
        match call.method, names:
            case "GET", []:
                return self._list(call)
            case "POST", []:
                return self._rules.add(object_of(call, _EXAMPLE), before).addCallback(_answered)
            case "PUT", [number]:
                return self._rules.move(_number(number), before).addCallback(_answered)
            case "DELETE", [number]:
                removed = self._rules.remove(_number(number))
                return removed.addCallback(lambda rule: Answer(DONE.status, note=_note(rule)))
            case _, []:
                raise not_allowed("GET", "POST")
            case _, [_]:
                raise not_allowed("PUT", "DELETE")
        raise not_found("there is no such path")

    def _list(self, call: Call) -> Deferred[Answer]:
        most = number_of(call.arguments, "limit", _PAGE, _MOST)
        after = number_of(call.arguments, "cursor", 0, _HIGHEST)

        def shown(found: list[tuple[int, Mapping[str, Any]]]) -> Answer:
            more = {"cursor": str(found[-1][0])} if len(found) == most else {}
            meta = {"limit": most, **more}
            return answer({"data": [{"number": number, **fields} for number, fields in found], "meta": meta})

        return self._rules.page(after, most).addCallback(shown)

    def _failed(self, failure: Failure) -> Answer:
        error = failure.value
        if isinstance(error, BadValue):
            return bad_request(str(error)).answer()
        if isinstance(error, Unknown):
            return not_found(str(error)).answer()
        if isinstance(error, Contended):
            return unavailable(str(error)).answer()
        return refusal_of(failure, self._log)


def _number(text: str) -> int:
    number = digits_of(text)
    if number is None:
        raise bad_request("the number of a rule is a whole number, as in the list")
    return number


def _shown(rule: StoredRule) -> dict[str, Any]:
    return {"number": rule.number, **rule.fields}


def _note(rule: StoredRule) -> dict[str, object]:
    return {"number": rule.number, "rule": str(rule.rule)}


def _answered(rule: StoredRule) -> Answer:
    return answer(_shown(rule), note=_note(rule))
