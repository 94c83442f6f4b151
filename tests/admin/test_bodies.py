"""The bodies of calls: how long they may be, who reads long ones, and which JSON is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.arguments import SHORT_BODY, STRING, json_of, object_of
from holdfast.admin.call import NDJSON, Answer, Call, RefusedCall, Scope, answer
from holdfast.admin.callers import this_operator
from holdfast.admin.openapi import document_of
from holdfast.admin.routing import USUAL_BODY, Content, Route, RoutingTable, in_path
from holdfast.core.strict_json import read_long_json


def shown(call: Call) -> Deferred[Answer]:
    found = json_of(call)
    return succeed(answer(len(found)))


def route(path: str, body: Content | None) -> Route:
    values = (in_path("name", STRING, "a name"),) if "{" in path else ()
    return Route(
        method="POST", path=path, handler=shown, scope=Scope.ADMIN, summary="", parameters=values, body=body
    )  # fmt: skip


ROUTES = [
    route("/usual", Content()),
    route("/bulk", Content(most_bytes=1 << 20)),
    route("/message/{name}", Content(most_bytes=None)),
    route("/lines", Content(STRING, "lines", NDJSON)),
    route("/none", None),
]


class Threads:
    """Stands for the thread: it reads when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, Deferred[Any]]] = []

    def read(self, body: bytes) -> Deferred[Any]:
        reading: Deferred[Any] = Deferred()
        self.waiting.append((body, reading))
        return reading

    def run(self) -> None:
        for body, reading in self.waiting:
            try:
                found = read_long_json(body)
            except ValueError as error:
                reading.errback(error)
            else:
                reading.callback(found)


@pytest.mark.parametrize(
    ("method", "path", "most"),
    [
        ("POST", "/usual", USUAL_BODY),
        ("POST", "/bulk", 1 << 20),
        ("POST", "/message/a%2Fb", 5 << 20),
        ("POST", "/message/%ff", USUAL_BODY),
        ("POST", "/none", USUAL_BODY),
        ("PUT", "/bulk", USUAL_BODY),
        ("POST", "/elsewhere", USUAL_BODY),
    ],
)
def test_each_call_has_a_limit_for_its_body(method: str, path: str, most: int) -> None:
    """The site asks for it when the head has arrived; whatever is no call has the usual one."""
    assert RoutingTable(ROUTES, longest=5 << 20).longest_body(method, path) == most


def test_the_description_has_the_limits() -> None:
    paths = document_of(ROUTES, "1", 5 << 20)["paths"]
    limits = {path: each["post"].get("requestBody", {}).get("x-max-bytes") for path, each in paths.items()}
    assert limits == {
        "/usual": USUAL_BODY, "/bulk": 1 << 20, "/message/{name}": 5 << 20, "/lines": USUAL_BODY, "/none": None,
    }  # fmt: skip


@pytest.mark.parametrize(("size", "in_thread"), [(SHORT_BODY, False), (SHORT_BODY + 1, True)])
def test_a_thread_reads_long_bodies(size: int, in_thread: bool) -> None:
    """The reactor does its other work in the meantime."""
    threads = Threads()
    table = RoutingTable(ROUTES, read_long=threads.read)
    body = json.dumps(["x" * (size - 4)]).encode()
    answered: list[Answer] = []
    table.answer(Call("POST", "/bulk", {}, body, this_operator())).addCallback(answered.append)
    assert bool(answered) != in_thread
    threads.run()
    assert [one.status for one in answered] == [200]


def test_a_long_body_that_is_wrong_is_refused() -> None:
    """With the path of the value, as a short one is. Nobody who may not make the call has a body read."""
    threads = Threads()
    table = RoutingTable(ROUTES, read_long=threads.read)
    body = b'[{"a": NaN}, "' + b"x" * SHORT_BODY + b'"]'
    answered: list[Answer] = []
    table.answer(Call("POST", "/bulk", {}, body)).addCallback(answered.append)
    assert threads.waiting == []
    table.answer(Call("POST", "/bulk", {}, body, this_operator())).addCallback(answered.append)
    threads.run()
    stranger, operator = answered
    assert stranger.status == 401
    refusal = json.loads(operator.body)
    assert (operator.status, refusal["field"], refusal["allowed"]) == (400, "[0].a", "a number")


@pytest.mark.parametrize(
    ("body", "field"), [(b'{"a": 1, "a": 2}', "a"), (b'{"a": [1e999]}', "a[0]"), (b"[]", None), (b"{", None)]
)
def test_a_short_body_that_is_wrong_is_refused(body: bytes, field: str | None) -> None:
    """With the path, and what is allowed."""
    with pytest.raises(RefusedCall) as refused:
        object_of(Call("POST", "/usual", {}, body), "{}")
    assert (refused.value.status, refused.value.field) == (400, field)
    assert refused.value.allowed
