"""The table of routes as an OpenAPI 3.1 document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.arguments import PROBLEM_SCHEMA, STRING, record
from holdfast.admin.call import JSON, PROBLEM, Answer, Call, Scope
from holdfast.admin.routing import LONGEST_BODY, Content, Parameter, Route

OPENAPI_PATH = "/openapi.json"
_COOKIE = "of the dashboard: the name ends with the port of the URL, and begins with __Host- over TLS"

_LATE: Mapping[str, Any] = {"$ref": "#/components/responses/Late"}
_REFUSED: Mapping[str, Any] = {"$ref": "#/components/responses/Refused"}


class OpenAPI:
    """Answers with the document about these routes, and about its own."""

    def __init__(self, routes: Iterable[Route], version: str, longest: int = LONGEST_BODY) -> None:
        self.route = Route(
            method="GET",
            path=OPENAPI_PATH,
            handler=self.document,
            scope=Scope.READ,
            open_on_loopback=True,
            summary="Describe the API in the format OpenAPI 3.1",
            answers={200: Content(record({"openapi": STRING}), "the document")},
        )
        self._routes = (*routes, self.route)
        self._version = version
        self._longest = longest
        self._body = b""

    def document(self, _call: Call) -> Deferred[Answer]:
        """Answer with the document."""
        if not self._body:
            self._body = (
                json.dumps(document_of(self._routes, self._version, self._longest), ensure_ascii=False).encode() + b"\n"
            )
        return succeed(Answer(body=self._body))


def document_of(routes: Iterable[Route], version: str, longest: int = LONGEST_BODY) -> dict[str, Any]:
    """Return the document. A body with the largest message has ``longest`` bytes at most."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.control_only:
            continue
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, longest)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version,
            "description": "The API for operators. Each call needs a scope; `admin` includes all others.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM_SCHEMA},
            "responses": {
                "Late": {
                    "description": "the change needs longer than its caller waits, and goes on as a job",
                    "headers": {"Location": {"description": "the address of the job", "schema": {"type": "string"}}},
                    "content": {JSON: {"schema": {"type": "object"}}},
                },
                "Refused": {
                    "description": "the call is refused, or has failed; the content says why",
                    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                },
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "KEY:SECRET or KEY.SECRET"},
                "basic": {"type": "http", "scheme": "basic", "description": "an API key: its key and its secret"},
                "session": {"type": "apiKey", "in": "cookie", "name": "holdfast-18083", "description": _COOKIE},
            },
        },
    }


def _operation(route: Route, longest: int) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _name_of(route),
        "tags": [_tag_of(route)],
        "summary": route.summary,
        "description": f"Scope: `{route.scope.value}`.",
        "responses": {
            **({} if route.method == "GET" or not route.has_deadline else {str(http.ACCEPTED): _LATE}),
            **{str(status): _response(content) for status, content in route.answers.items()},
            "4XX": _REFUSED,
            "5XX": _REFUSED,
        },
        "security": _security(route),
    }
    if route.parameters:
        operation["parameters"] = [_parameter(each) for each in route.parameters]
    if route.body is not None:
        content = {route.body.content_type: {"schema": dict(route.body.schema)}}
        most = longest if route.body.most_bytes is None else route.body.most_bytes
        operation["requestBody"] = {
            "description": f"{route.body.description}, of at most {most} bytes",
            "required": route.body.required,
            "content": content,
            "x-max-bytes": most,
        }
    return operation


def _security(route: Route) -> list[dict[str, list[str]]]:
    """Return the ways to prove an identity; an empty one means that no proof is needed, at least on this machine."""
    if route.scope is Scope.OPEN:
        return []
    ways: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}, {"session": []}]
    return [{}, *ways] if route.open_on_loopback else ways


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where.value,
        "required": parameter.required,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _response(content: Content | None) -> dict[str, Any]:
    if content is None:
        return {"description": http.RESPONSES[http.NO_CONTENT].decode()}
    return {
        "description": content.description,
        "content": {kind: {"schema": dict(content.schema)} for kind in (content.content_type, *content.also)},
    }


def _name_of(route: Route) -> str:
    """Return a unique name for the operation, such as ``get_clients_clientid``."""
    words = [word.strip("{}").replace(".", "_") for word in route.path.removeprefix("/api/v5").split("/") if word]
    return "_".join([route.method.lower(), *words])


def _tag_of(route: Route) -> str:
    segments = [word for word in route.path.removeprefix("/api/v5").split("/") if word]
    return "retainer" if segments[:2] == ["mqtt", "retainer"] else segments[0].removesuffix(".json")
