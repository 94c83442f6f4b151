"""The table of routes: what is dispatched, refused and told, and the OpenAPI document made from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, succeed

from holdfast.admin.arguments import STRING, request
from holdfast.admin.call import ANYONE, PROBLEM, Answer, Call, Caller, Scope, Via, answer, conflict
from holdfast.admin.callers import this_operator
from holdfast.admin.openapi import OpenAPI, document_of
from holdfast.admin.routing import UNANSWERED, Content, Parameter, Route, RoutingTable, in_path, query
from tests.admin.doubles import Desk
from tests.storage.doubles import result_of

READER = Caller("key reader", None, frozenset({Scope.READ}), Via.KEY)
CHIEF = Caller("alice", 1000, frozenset({Scope.ADMIN}), Via.KEY)


def shown(call: Call) -> Deferred[Answer]:
    """Answer with the arguments."""
    return succeed(answer(dict(call.arguments)))


def route(method: str, path: str, *parameters: Parameter, **options: Any) -> Route:
    """Return a route whose answer shows its arguments."""
    values: dict[str, Any] = {"handler": shown, "scope": Scope.READ, "summary": "x", **options}
    return Route(method=method, path=path, parameters=parameters, **values)


CLIENT = in_path("clientid", STRING, "the client")
TABLE = RoutingTable(
    [
        route("GET", "/clients"),
        route("GET", "/clients/{clientid}", CLIENT, query("fields", STRING, "which")),
        route("DELETE", "/clients/{clientid}", CLIENT, scope=Scope.ADMIN),
        route("GET", "/clients/{clientid}/queue", CLIENT),
        route("POST", "/clients/kickout/bulk"),
        route("GET", "/message/{topic}", in_path("topic", STRING, "the topic", rest=True)),
        route("GET", "/find", query("what", STRING, "what to find", required=True)),
        route("GET", "/healthz", scope=Scope.OPEN),
        route("GET", "/metrics", open_on_loopback=True),
        route("POST", "/link", control_only=True, scope=Scope.ADMIN),
    ]
)


def ask(method: str, path: str, caller: Caller = CHIEF, **arguments: str) -> tuple[int, Any]:
    """Make a call; return the status, and the arguments or the problem."""
    found: Answer = result_of(TABLE.answer(Call(method, path, arguments, b"", caller)))
    return found.status, json.loads(found.body)


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("/clients", {}),
        ("/clients/a%2Fb%20c", {"clientid": "a/b c"}),
        ("/clients/kickout", {"clientid": "kickout"}),
        ("/clients/kickout/queue", {"clientid": "kickout"}),
        ("/clients/kickout%2Fbulk/queue", {"clientid": "kickout/bulk"}),
        ("/message/a/b%20c", {"topic": "a/b c"}),
        ("/message/", {"topic": ""}),
        ("/message//", {"topic": "/"}),
    ],
)
def test_values_in_the_path_are_arguments(path: str, arguments: Mapping[str, str]) -> None:
    """Decoded once. A word of a path goes before a value, but hides no client of that name."""
    assert ask("GET", path) == (200, arguments)


@pytest.mark.parametrize("path", ["", "/", "/client", "/clients/", "/clients/a/b", "clients", "/message", "//clients"])
def test_other_paths_are_not_found(path: str) -> None:
    assert ask("GET", path)[0] == 404


def test_another_method_is_refused_with_those_allowed() -> None:
    found: Answer = result_of(TABLE.answer(Call("POST", "/clients/a", {}, b"", CHIEF)))
    assert (found.status, found.headers) == (405, (("Allow", "GET, DELETE"),))
    assert ask("HEAD", "/clients")[0] == 200


def test_arguments_are_refused_with_the_field_and_what_is_allowed() -> None:
    """A value of the path cannot be given as an argument, too."""
    for arguments in ({"fild": "x"}, {"clientid": "other"}):
        status, problem = ask("GET", "/clients/a", CHIEF, **arguments)
        assert (status, problem["field"], problem["allowed"]) == (400, *arguments, "fields")
    status, problem = ask("GET", "/find")
    assert (status, problem["field"], problem["allowed"]) == (400, "what", "what to find")
    assert ask("GET", "/clients/%ff")[0] == 400


def test_a_refusal_is_a_problem_document() -> None:
    found: Answer = result_of(TABLE.answer(Call("GET", "/nothing", {})))
    assert found.content_type == PROBLEM
    assert json.loads(found.body) == {
        "type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no such path",
        "code": "NOT_FOUND", "message": "there is no such path",
    }  # fmt: skip


def test_a_call_needs_its_scope() -> None:
    """Nobody: 401, with the way to log in. A caller with other scopes: 403, with the scope that is missing."""
    assert ask("GET", "/healthz", ANYONE) == (200, {})
    assert ask("GET", "/clients", READER) == (200, {})
    status, problem = ask("DELETE", "/clients/a", READER)
    assert (status, problem["scope"], problem["code"]) == (403, "admin", "FORBIDDEN")
    assert problem["message"] == "this call needs the scope admin; key reader has: read"
    refused: Answer = result_of(TABLE.answer(Call("GET", "/clients", {})))
    assert refused.status == 401
    assert dict(refused.headers)["WWW-Authenticate"].startswith("Bearer ")


def test_a_caller_without_the_scope_does_not_reach_the_handler_or_learn_about_arguments() -> None:
    assert ask("DELETE", "/clients/a", READER, nonsense="1")[0] == 403


def test_some_calls_need_a_place_rather_than_a_scope() -> None:
    assert ask("GET", "/metrics", ANYONE)[0] == 401
    assert ask("GET", "/metrics", Caller(on_loopback=True))[0] == 200
    assert ask("GET", "/clients", Caller(on_loopback=True))[0] == 401
    assert ask("POST", "/link", CHIEF)[0] == 403
    assert ask("POST", "/link", this_operator())[0] == 200


def test_a_failure_is_refused_as_the_route_says() -> None:
    def fails(_call: Call) -> Deferred[Answer]:
        raise KeyError("a")

    table = RoutingTable([route("GET", "/a", handler=fails, refusals={LookupError: lambda _: conflict("there")})])
    assert result_of(table.answer(Call("GET", "/a", {}, b"", CHIEF))).status == 409


def test_arguments_that_a_call_does_not_know_are_told_to_nobody() -> None:
    """A password that somebody has sent to the wrong place stands in no log."""
    told: list[dict[str, str]] = []
    table = RoutingTable(
        [route("POST", "/a", query("b", STRING, "b"))], lambda call, _: told.append(dict(call.arguments))
    )
    for arguments in ({"password": "secret", "b": "1"}, {"b": "2"}):
        result_of(table.answer(Call("POST", "/a", arguments, b"", CHIEF)))
    assert told == [{"b": "1"}, {"b": "2"}]


@pytest.mark.parametrize("finishes", [True, False])
def test_a_caller_that_leaves_is_told_of(finishes: bool) -> None:
    """With the outcome if the change goes on, and as unanswered if it is cancelled."""
    told: list[int] = []
    work: Deferred[Answer] = Deferred()
    changing = route("POST", "/a", handler=lambda _: work, finishes=finishes)
    table = RoutingTable([changing], lambda _call, told_answer: told.append(told_answer.status))
    answering = table.answer(Call("POST", "/a", {}, b"", CHIEF))
    answering.addErrback(lambda failure: failure.trap(CancelledError))
    answering.cancel()
    assert told == ([] if finishes else [UNANSWERED])
    if finishes:
        work.callback(Answer())
        assert told == [200]


@pytest.mark.parametrize(
    "routes",
    [
        [route("GET", "/a"), route("GET", "/a")],
        [route("GET", "/a/{b}")],
        [route("GET", "/a", in_path("b", STRING, "b"))],
        [route("GET", "/a/{b}", in_path("b", STRING, "b")), route("PUT", "/a/{c}", in_path("c", STRING, "c"))],
    ],
)
def test_contradicting_routes_are_found_at_once(routes: list[Route]) -> None:
    with pytest.raises(ValueError, match="/a"):
        RoutingTable(routes)


@given(st.text(alphabet="/abc%{}2F", max_size=20))
def test_no_path_causes_an_internal_error(path: str) -> None:
    assert ask("GET", path)[0] in (200, 400, 404, 405)


def test_the_document_has_all_calls_of_the_retainer() -> None:
    """Each with a unique name, its arguments, its body, and what it may answer."""
    routes = Desk().api.routes
    document = document_of(routes, "1")
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert len(operations) == len({each["operationId"] for each in operations})
    assert len(operations) == sum(not each.control_only for each in routes)
    assert all({"4XX", "5XX"} < each["responses"].keys() for each in operations)
    late = {"$ref": "#/components/responses/Late"}
    assert document["paths"]["/api/v5/mqtt/retainer/messages"]["post"]["responses"]["202"] == late
    listed = document["paths"]["/api/v5/mqtt/retainer/messages"]["get"]
    assert [each["name"] for each in listed["parameters"]][:5] == ["topic", "page", "limit", "cursor", "at"]
    assert json.loads(json.dumps(document)) == document


def test_the_document_lists_itself() -> None:
    api = OpenAPI([route("POST", "/a", body=Content(request({"b": STRING}), "b"))], "1")
    table = RoutingTable([api.route])
    document = json.loads(result_of(table.answer(Call("GET", "/openapi.json", {}, b"", READER))).body)
    assert set(document["paths"]) == {"/a", "/openapi.json"}
    assert document["openapi"] == "3.1.0"
    body = document["paths"]["/a"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["additionalProperties"] is False
