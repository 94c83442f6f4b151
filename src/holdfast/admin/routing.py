"""The one table of routes: each call goes to its handler, and whatever is no call of the API is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.arguments import ANYTHING, SHORT_BODY, TOPIC_FORMAT, Schema, decoded, not_json
from holdfast.admin.call import (
    JSON,
    Answer,
    Call,
    Handler,
    Refusals,
    RefusedCall,
    Scope,
    Via,
    bad_request,
    not_allowed,
    not_found,
    refusal_of,
    unauthorized,
)
from holdfast.core.strict_json import BadJSON, read_long_json
from holdfast.core.topics import MOST_LEVELS, level_count

# One call of the API: its path, its arguments, its scope and its handler.


class Where(Enum):
    """The place of an argument."""

    PATH = "path"
    QUERY = "query"


@frozen(kw_only=True)
class Parameter:
    """An argument. A ``rest`` is the whole end of the path, with the slashes in it."""

    name: str
    where: Where
    schema: Schema
    description: str
    required: bool = False
    rest: bool = False


def query(name: str, schema: Schema, description: str, *, required: bool = False) -> Parameter:
    """Return an argument of the query string."""
    return Parameter(name=name, where=Where.QUERY, schema=schema, description=description, required=required)


def in_path(name: str, schema: Schema, description: str, *, rest: bool = False) -> Parameter:
    """Return a value in the path."""
    return Parameter(
        name=name, where=Where.PATH, schema=schema, description=description, required=True, rest=rest
    )  # fmt: skip


#: bytes of the longest body, unless a call says otherwise
USUAL_BODY = 1 << 16
#: bytes of a body with the largest message, unless the configuration says otherwise
LONGEST_BODY = 1 << 24


@frozen
class Content:
    """The content of a body or an answer. An answer may have one of the types ``also`` instead.

    A body has at most ``most_bytes``; None: as many as the largest message needs.
    """

    schema: Schema = ANYTHING
    description: str = "done"
    content_type: str = JSON
    required: bool = True
    also: tuple[str, ...] = ()
    most_bytes: int | None = USUAL_BODY


#: an answer of status 204
NOTHING: Content | None = None


#: the attribute of a method with the calls that it answers
_DECLARED = "answered_calls"
M = TypeVar("M", bound=Callable[..., Deferred[Answer]])


def _no_handler(call: Call) -> Deferred[Answer]:
    raise NotImplementedError(f"{call.path} is declared and not bound to an object")


@frozen(kw_only=True)
class Route:
    """A call, and the decorator of the method that answers it: :func:`routes_of` finds both.

    The ``path`` has names of values in braces: ``/api/v5/clients/{clientid}``. The handler finds these values among
    the arguments. ``refusals`` says how to refuse when the handler fails with one of these exceptions. A call that
    ``finishes`` goes on if its caller leaves: a change that has begun is not left half done. One that is
    ``open_on_loopback`` needs no scope from this machine. One that is ``control_only`` cannot be made over HTTP. One
    that ``stores`` changes the database, and is refused while it is away. Without ``has_deadline``, a change may take
    any time, and so may the pieces of an answer: a stream of events.
    """

    method: str
    path: str
    scope: Scope
    summary: str
    handler: Handler = _no_handler
    parameters: tuple[Parameter, ...] = ()
    body: Content | None = None
    answers: Mapping[int, Content | None] = field(factory=lambda: {200: Content()})
    refusals: Refusals = field(factory=dict)
    finishes: bool = False
    open_on_loopback: bool = False
    control_only: bool = False
    stores: bool = False
    has_deadline: bool = True

    def __call__(self, method: M) -> M:
        """Declare a method as the handler of this call. A method may answer several calls."""
        vars(method)[_DECLARED] = (self, *vars(method).get(_DECLARED, ()))
        return method

    @property
    def in_query(self) -> tuple[Parameter, ...]:
        """The arguments of the query string."""
        return tuple(each for each in self.parameters if each.where is Where.QUERY)

    @property
    def in_path(self) -> tuple[Parameter, ...]:
        """The values in the path."""
        return tuple(each for each in self.parameters if each.where is Where.PATH)


def routes_of(calls: object) -> tuple[Route, ...]:
    """Return the calls that the methods of an object answer, in the order of the methods."""
    return tuple(
        evolve(route, handler=getattr(calls, name))
        for name, method in vars(type(calls)).items()
        for route in getattr(method, _DECLARED, ())
    )


# Finds the routes of a path: a tree of its segments, where a value in the path fits any segment.


@define
class _Node:
    """The parts that may follow a part of a path."""

    words: dict[str, _Node] = field(factory=dict)
    value: tuple[str, _Node] | None = None
    rest: tuple[str, _Node] | None = None
    #: the routes that end here, by method
    routes: dict[str, Route] = field(factory=dict)


class Paths:
    """The routes by their paths. Raises ValueError for routes that contradict each other."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def find(self, path: str) -> tuple[Mapping[str, Route], Mapping[str, str]] | None:
        """Return the routes of a path by method, and the values in the path; None if there are none.

        A word in a template goes before a value. Raises RefusedCall if a value is not UTF-8.
        """
        found = _walk(self._root, path.split("/"))
        if found is None:
            return None
        node, values = found
        return node.routes, {name: decoded(text) for name, text in values.items()}

    def _add(self, route: Route) -> None:
        declared = {each.name: each for each in route.in_path}
        node = self._root
        for segment in route.path.split("/"):
            if not segment.startswith("{"):
                node = node.words.setdefault(segment, _Node())
                continue
            name = segment.strip("{}")
            parameter = declared.pop(name, None)
            if parameter is None:
                raise ValueError(f"{route.path}: {name} is not declared")
            if parameter.rest:
                found = node.rest = node.rest or (name, _Node())
            else:
                found = node.value = node.value or (name, _Node())
            if found[0] != name:
                raise ValueError(f"{route.path}: this value is {found[0]} in another route")
            node = found[1]
        if declared:
            raise ValueError(f"{route.path}: not in the path: {', '.join(declared)}")
        if route.method in node.routes:
            raise ValueError(f"{route.method} {route.path}: there are two")
        node.routes[route.method] = route


def _walk(node: _Node, segments: list[str]) -> tuple[_Node, Mapping[str, str]] | None:
    """Return the node with routes at the end of these segments, and the values on the way, still encoded."""
    if not segments:
        return (node, {}) if node.routes else None
    first, *others = segments
    found = _walk(node.words[first], others) if first in node.words else None
    if found is None and node.value is not None and first:
        name, after = node.value
        walked = _walk(after, others)
        found = None if walked is None else (walked[0], {name: first, **walked[1]})
    if found is None and node.rest is not None:
        name, after = node.rest
        found = (after, {name: "/".join(segments)})
    return found


# The one table of routes: each call goes to its handler, and whatever is no call of the API is refused.


#: is told of each answered call that may change something
Witness = Callable[[Call, Answer], None]

#: Reads the JSON in a long body. Fails with BadJSON.
ReadLong = Callable[[bytes], Deferred[Any]]

#: Does the work of a call that may be made, and returns its answer. Raises RefusedCall.
Run = Callable[[Route, Call, Callable[[], Deferred[Answer]]], Deferred[Answer]]

#: The status that is told of a call whose caller left before its answer. What it had begun may be done.
UNANSWERED = 499

_READS = ("GET", "HEAD")


def _tell_nobody(_call: Call, _answer: Answer) -> None:
    """Tell nobody."""


def _run_without_deadline(_route: Route, _call: Call, work: Callable[[], Deferred[Answer]]) -> Deferred[Answer]:
    return work()


def _read_now(body: bytes) -> Deferred[Any]:
    return maybeDeferred(read_long_json, body)


def _refuse_json(failure: Failure) -> Failure:
    return Failure(not_json(failure.value)) if isinstance(failure.value, BadJSON) else failure


class RoutingTable:
    """Answers calls by their routes.

    The ``witness`` is told of every call that has a route, except reads, with its answer. A caller that leaves is told
    of, too: else whoever hangs up could hide a change. What is refused to a stranger is not told: strangers could
    write as many lines as they like.

    ``read_long`` reads the JSON in a long body outside of the reactor's thread; by default, at once. A body with the
    largest message has ``longest`` bytes at most. ``run`` gives each call its deadline; by default, it has none.
    An argument that names a topic has at most ``most_levels()`` levels.
    """

    _log = Logger()

    def __init__(
        self,
        routes: Iterable[Route],
        witness: Witness = _tell_nobody,
        read_long: ReadLong = _read_now,
        longest: int = LONGEST_BODY,
        run: Run = _run_without_deadline,
        most_levels: Callable[[], int] = lambda: MOST_LEVELS,
    ) -> None:
        self.routes = tuple(routes)
        self._paths = Paths(self.routes)
        self._witness = witness
        self._read_long = read_long
        self._longest = longest
        self._run = run
        self._most_levels = most_levels

    def longest_body(self, method: str, path: str) -> int:
        """Return the most bytes that the body of a call may have, also of one that is refused later."""
        try:
            found = self._paths.find(path)
        except RefusedCall:
            return USUAL_BODY
        route = None if found is None else found[0].get(method)
        if route is None or route.body is None:
            return USUAL_BODY
        return self._longest if route.body.most_bytes is None else route.body.most_bytes

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer any call. The Deferred fails only with CancelledError, if the caller cancels it."""
        try:
            found = self._paths.find(call.path)
            if found is None:
                raise not_found("there is no such path")
            routes, values = found
            route = routes.get(call.method) or (routes.get("GET") if call.method == "HEAD" else None)
            if route is None:
                raise not_allowed(tuple(routes))
        except RefusedCall as refused:
            return succeed(refused.answer())
        filled = evolve(call, arguments={**call.arguments, **values})
        answering = maybeDeferred(self._begin, route, call, filled)
        answering.addErrback(refusal_of, route.refusals, self._log)
        if call.method not in _READS:
            told = evolve(call, arguments=_declared(route, call))
            answering.addCallbacks(self._told, self._unanswered, callbackArgs=(told,), errbackArgs=(told,))
        return _uncancelled(answering) if route.finishes else answering

    def _begin(self, route: Route, call: Call, filled: Call) -> Deferred[Answer]:
        """Run the handler. Raises RefusedCall if this call may not be made now, or not with these arguments."""
        _check_caller(route, call)
        _check_arguments(route, call)
        self._check_levels(route, filled)

        def work() -> Deferred[Answer]:
            if route.body is None or route.body.content_type != JSON or len(call.body) <= SHORT_BODY:
                return route.handler(filled)
            reading = self._read_long(call.body).addErrback(_refuse_json)
            return reading.addCallback(lambda found: route.handler(evolve(filled, parsed=found)))

        return self._run(route, call, work)

    def _check_levels(self, route: Route, filled: Call) -> None:
        """Refuse topics with more levels than any client may use. A comparison then has few levels."""
        for each in route.parameters:
            if each.schema.get("format") == TOPIC_FORMAT and each.name in filled.arguments:
                most = self._most_levels()
                if level_count(filled.arguments[each.name]) > most:
                    raise bad_request(
                        f"{each.name} has more than {most} levels (mqtt.max_topic_levels)", each.name,
                        f"at most {most} levels",
                    )  # fmt: skip

    def _told(self, answer: Answer, call: Call) -> Answer:
        if answer.status < http.BAD_REQUEST or call.caller.via is not Via.NOTHING:
            self._witness(call, answer)
        return answer

    def _unanswered(self, failure: Failure, call: Call) -> Failure:
        self._witness(call, Answer(UNANSWERED))
        return failure


def _check_arguments(route: Route, call: Call) -> None:
    names = [each.name for each in route.in_query]
    for name in call.arguments:
        if name not in names:
            there = ", ".join(names) or "none"
            raise bad_request(f"there is no argument {name[:40]!a} here; there are: {there}", name[:40], there)
    for each in route.in_query:
        if each.required and each.name not in call.arguments:
            raise bad_request(f"the argument {each.name} is missing: {each.description}", each.name, each.description)


def _declared(route: Route, call: Call) -> dict[str, str]:
    """Return the arguments that this route knows: others may be secrets that somebody has sent to the wrong place."""
    return {each.name: call.arguments[each.name] for each in route.in_query if each.name in call.arguments}


def _check_caller(route: Route, call: Call) -> None:
    caller, scope = call.caller, route.scope
    if route.control_only and caller.via is not Via.CONTROL:
        raise RefusedCall(http.FORBIDDEN, "FORBIDDEN", "this call can be made over the control socket only")
    if caller.may(scope) or (route.open_on_loopback and caller.on_loopback):
        return
    if caller.via is Via.NOTHING:
        message = f"this call needs an API key or a login with the scope {scope.value}"
        raise unauthorized(message)
    has = ", ".join(sorted(each.value for each in caller.scopes)) or "none"
    raise RefusedCall(
        http.FORBIDDEN, "FORBIDDEN", f"this call needs the scope {scope.value}; {caller} has: {has}",
        more={"scope": scope.value},
    )  # fmt: skip


def _uncancelled(work: Deferred[Answer]) -> Deferred[Answer]:
    """Return a Deferred with the result of the work, which goes on if this Deferred is cancelled."""
    answer: Deferred[Answer] = Deferred()

    def done(result: Any) -> None:
        if not answer.called:  # else it has been cancelled
            answer.callback(result)

    work.addBoth(done)
    return answer
