"""Hostile names in calls about users and rules: refused with a reason, or kept as they are; never a failure."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from twisted.internet.defer import succeed

from holdfast.admin.call import Answer, Call, Caller, Scope, Via
from holdfast.admin.routing import RoutingTable
from holdfast.broker.identity import compose_account_routes
from holdfast.identity.api_keys import Keys
from tests.identity.accounts.conftest import NOW, Node
from tests.logs import logged
from tests.storage.doubles import result_of

USERS, RULES = "/api/v5/users", "/api/v5/rules"
OPERATOR = Caller("root", scopes=frozenset({Scope.ADMIN}), via=Via.CONTROL)

#: names that no user can have
REFUSED = {
    "empty": "",
    "NUL": "a\0b",
    "a line feed": "a\nb",
    "an escape sequence": "\x1b[2J",
    "a control character of C1": "a\x9bb",
    "a surrogate": "a\ud800",
    "half a pair": "\udc00a",
    "a level separator": "a/b",
    "a path": "../../etc/passwd",
    "HTML that closes": "<b>x</b>",
    "a wildcard": "#",
    "a wildcard in a name": "a+b",
    "a name of the broker": "$guest",
    "overlong": "x" * 256,
    "very long": "\u00e9" * 100_000,
}
#: names that are only text
KEPT = {
    "two dots": "..",
    "a dot": ".",
    "HTML": '<img src=x onerror="alert(1)">',
    "an encoded separator": "a%2fb",
    "an encoded NUL": "%00",
    "a placeholder": "%u",
    "quotes and SQL": "a'; DROP TABLE users; --\"",
    "a pattern of SQL": "%_\\",
    "a question": "a?b&c=d;e",
    "from right to left": "\u202egnp.exe",
    "an emoji": "\U0001f600",
    "the longest": "x" * 255,
}


class API:
    """The calls about the users and rules of a node, without a socket."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._table = RoutingTable(
            compose_account_routes(
                node.users,
                node.rules,
                Keys(node.store, now=lambda: NOW, kept=False),
                lambda password: succeed(f"hash of {len(password)} bytes"),
                lambda: NOW,
            )
        )

    def call(self, method: str, path: str, body: object = None, **arguments: str) -> tuple[int, Any]:
        """Return the status and the content of the answer."""
        content = b"" if body is None else json.dumps(body).encode()
        answer: Answer = result_of(self._table.answer(Call(method, path, arguments, content, OPERATOR)))
        return answer.status, json.loads(answer.body) if answer.body else None

    def names(self) -> list[str]:
        return [each["user_id"] for each in self.call("GET", USERS)[1]["data"]]


@pytest.fixture
def api(node: Node) -> API:
    return API(node)


def in_path(name: str) -> str:
    """Return the path of a user of this name, or of none: a surrogate has no place in a path."""
    return f"{USERS}/{quote(name.encode(errors='replace').decode(), safe='')}"


def test_a_name_that_no_user_can_have_is_refused_with_a_reason_and_changes_nothing(api: API) -> None:
    """Whichever way it comes: as a name, as a group, in the path, as an argument. No answer repeats all of it."""
    api.call("POST", USERS, {"user_id": "alice", "password": "x"})
    with logged() as events:
        for kind, name in REFUSED.items():
            for body in ({"user_id": name, "password": "x"}, {"user_id": "bob", "password": "x", "groups": [name]}):
                status, refusal = api.call("POST", USERS, body)
                assert (status, refusal["code"]) == (400, "BAD_REQUEST"), kind
                assert len(refusal["message"]) < 400, kind
                assert refusal["message"].isprintable(), kind
            assert api.call("PUT", f"{USERS}/alice", {"groups": [name]})[0] == 400, kind
            if name:
                for method, change in (("GET", None), ("PUT", {"groups": []}), ("DELETE", None)):
                    status, refusal = api.call(method, in_path(name), change)
                    assert status in (400, 404), (kind, method)
                    assert len(refusal["message"]) < 400, (kind, method)
            status, found = api.call("GET", USERS, user_id=name)
            assert status == 400 or (status, found["data"]) == (200, []), kind
            assert api.call("GET", USERS, cursor=name)[0] in (200, 400), kind
    assert api.names() == ["alice"]
    assert api.call("GET", f"{USERS}/alice")[1]["groups"] == []
    assert [event for event in events if event["log_level"].name in ("error", "critical")] == []


def test_a_name_that_is_only_text_is_kept_as_it_is(api: API) -> None:
    for kind, name in KEPT.items():
        status, shown = api.call("POST", USERS, {"user_id": name, "password": "x", "groups": [name]})
        assert (status, shown["user_id"], shown["groups"]) == (200, name, [name]), kind
        assert api.call("GET", in_path(name))[1] == shown, kind
        assert api.call("GET", USERS, user_id=name)[1]["data"] == [shown], kind
        assert api.call("POST", USERS, {"user_id": name, "password": "x"})[0] == 409, kind
    assert set(api.names()) == set(KEPT.values())
    for kind, name in KEPT.items():
        assert api.call("DELETE", in_path(name))[0] == 204, kind
    assert api.names() == []


@pytest.mark.parametrize(
    "path", ["/%ff", "/alice/groups", "/%2e%2e/rules", "/", "//alice", "/alice%00", "/" + "x" * 70_000]
)
def test_a_path_that_names_no_user_finds_none(api: API, path: str) -> None:
    api.call("POST", USERS, {"user_id": "alice", "password": "x"})
    for method in ("GET", "DELETE"):
        assert api.call(method, USERS + path)[0] in (400, 404, 405)
    assert api.names() == ["alice"]


def test_rules_with_hostile_names_are_refused_or_kept_as_they_are(api: API) -> None:
    """A rule for a name that nobody can have would allow or deny nothing, and a NUL would stop Postgres."""
    kept = 0
    with logged() as events:
        for kind, name in (REFUSED | KEPT).items():
            for field in ("users", "groups", "clients", "listeners", "topics"):
                fields = {"action": ["publish"], "topics": ["t"], "allow": True, field: [name]}
                status, shown = api.call("POST", RULES, fields)
                assert status in (200, 400), (kind, field)
                if status == 200:
                    kept += 1
                    assert shown[field] == [name], (kind, field)
                else:
                    assert shown["message"].isprintable(), (kind, field)
        for number in ("0", "-1", "..", "1%00", "9" * 5000, "\u0661", "1/2", "%31%2f"):
            assert api.call("DELETE", f"{RULES}/{quote(number, safe='%/')}")[0] in (400, 404), number
    listed = api.call("GET", RULES, limit="1000")[1]["data"]
    assert len(listed) == kept > len(KEPT)
    assert not any("\0" in json.dumps(rule) or "\\u0000" in json.dumps(rule) for rule in listed)
    assert len(api.node.restart().rules.known.rules) == kept  # type: ignore[union-attr]
    assert [event for event in events if event["log_level"].name in ("error", "critical")] == []
