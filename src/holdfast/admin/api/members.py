"""Calls about clients, answered by all members of a cluster together.

How it works. Each member knows its own clients. A call that comes to one member is made there, and asked of the others
as a *question* with its route and its arguments; they make it among their own clients only, and ask nobody:

    GET /clients, /subscriptions    each member gives its next page behind the cursor, and the pages are merged: up to
                                    the first end of a page that has not everything, and to the limit
    DELETE /clients/ID              is done at each member that has the client, as its unsubscribe
    all others                      this member's answer if it has the client, else that of the one that has it

So a cursor of one member is good for all, and a list is complete but for the clients of members that did not answer:
these are named. A call about a client whom no member knows is refused as such only if all members have answered.

The others check nothing but the form: the member that was called has checked the caller, and writes the audit log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import evolve, frozen
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.web import http

from holdfast.admin.api.clients import (
    CLIENTS_PREFIX,
    MOST_LISTED,
    SUBSCRIPTIONS_PREFIX,
    USUAL_LISTED,
    cursor_for,
    parts_of,
)
from holdfast.admin.arguments import number_of
from holdfast.admin.call import DONE, Answer, Call, RefusedCall, answer, bad_request, refusal_of, unavailable
from holdfast.admin.routing import Route
from holdfast.scheduling.waiting import as_deferred

#: the entries of each member in one read, and the reads that lead to a page by its number
AT_ONCE, MOST_READS = 250, 50
#: bytes of the longest answer of one member
MOST_BYTES = 1 << 20

#: the fields of an entry that give its place in a list, by the path of the list
_KEYS = {CLIENTS_PREFIX: ("clientid",), SUBSCRIPTIONS_PREFIX: ("clientid", "topic")}


class OtherMembers(Protocol):
    """Asks the other living members. Raises RefusedCall while too many questions are under way."""

    def __call__(self, body: bytes) -> Deferred[tuple[Mapping[int, bytes], Sequence[int]]]:
        """Fire with the answers by node, and the silent nodes."""


@frozen
class _Told:
    """The answer of one member: its status, and its content; a refusal has its own content."""

    node: str
    status: int
    content: Any

    @property
    def is_good(self) -> bool:
        """Whether the member has made the call."""
        return self.status < http.BAD_REQUEST


class CallsOfMembers:
    """Makes calls about clients at all members. ``routes`` are the calls at this member, whose ``node`` is named."""

    _log = Logger()

    def __init__(self, routes: Sequence[Route], node: str, ask: OtherMembers) -> None:
        self._here = {f"{route.method} {route.path}": route for route in routes}
        self._node = node
        self._ask = ask
        self.routes = tuple(evolve(route, handler=partial(self._handler_of(route), route)) for route in routes)

    def _handler_of(self, route: Route) -> Callable[[Route, Call], Deferred[Answer]]:
        if route.method != "GET":
            return self._do_everywhere
        return self._list if route.path in _KEYS else self._find

    # --- for other members --------------------------------------------------------------------------------------------

    @as_deferred
    async def answer(self, body: bytes) -> bytes:
        """Answer the question of another member. Fails with ValueError for what no member asks."""
        asked = json.loads(body)
        route = self._here.get(asked["call"])
        if route is None:
            raise ValueError(f"no member asks {asked['call'][:100]!a}")
        made = await self._made_here(route, Call(route.method, route.path, asked["arguments"], asked["body"].encode()))
        found = b"%d %s" % (made.status, made.body)
        if len(found) > MOST_BYTES:
            told = f"the answer of node {self._node} is longer than {MOST_BYTES} bytes; ask for fewer entries (limit)"
            found = b"%d %s" % (http.BAD_REQUEST, bad_request(told, "limit").answer().body)
        return found

    def _made_here(self, route: Route, call: Call) -> Deferred[Answer]:
        return maybeDeferred(route.handler, call).addErrback(refusal_of, route.refusals, self._log)

    # --- calls to this member -----------------------------------------------------------------------------------------

    async def _everywhere(self, route: Route, call: Call) -> tuple[list[_Told], list[str]]:
        """Make a call at all members. Return the answers, this member's first, and the silent members."""
        body = call.body.decode("utf-8", "replace")
        question = {"call": f"{route.method} {route.path}", "arguments": dict(call.arguments), "body": body}
        asking = self._ask(json.dumps(question).encode())
        told = [_told(self._node, await self._made_here(route, call))]
        answers, silent = await asking
        for node, found in sorted(answers.items()):
            status, _, content = found.partition(b" ")
            told.append(_Told(str(node), int(status), json.loads(content) if content else None))
        return told, [str(node) for node in sorted(silent)]

    @as_deferred
    async def _find(self, route: Route, call: Call) -> Answer:
        """Return the answer of the member that has the client; of the one where it is connected, if there are two."""
        here = await self._made_here(route, call)
        if here.status != http.NOT_FOUND and (route.path != _ONE or _is_connected(_told(self._node, here))):
            return here
        told, silent = await self._everywhere(route, call)
        good = [each for each in told if each.is_good]
        if good:
            return answer(next(filter(_is_connected, good), good[0]).content)
        raise _nowhere(told, silent)

    @as_deferred
    async def _do_everywhere(self, route: Route, call: Call) -> Answer:
        """Make a change at each member that has the client."""
        told, silent = await self._everywhere(route, call)
        failed = [each for each in told if not each.is_good and each.status != http.NOT_FOUND]
        if failed or not any(each.is_good for each in told):
            raise _nowhere(failed or told, silent)
        return DONE

    @as_deferred
    async def _list(self, route: Route, call: Call) -> Answer:
        """Return a page of the merged lists."""
        number = number_of(call.arguments, "page", 1, 2**53)
        if "page" in call.arguments and call.arguments.get("cursor"):
            raise bad_request("page is not allowed together with cursor", "page", "nothing")
        limit = number_of(call.arguments, "limit", USUAL_LISTED, MOST_LISTED)
        arguments = {name: value for name, value in call.arguments.items() if name != "page"}
        reads = 0
        for left in reversed(range(min(number, MOST_READS + 1))):
            rows: list[Any] = []
            cursor: str | None = ""
            while cursor is not None and len(rows) < limit and ("page" in call.arguments or not reads):
                reads += 1
                if reads > MOST_READS:
                    allowed = f"a page that {MOST_READS} reads lead to; use cursor instead"
                    raise bad_request(f"page is {allowed}", "page", allowed)
                arguments["limit"] = str(min(limit - len(rows), AT_ONCE))
                told, silent = await self._everywhere(route, evolve(call, arguments=arguments))
                refused = next((each for each in told if not each.is_good), None)
                if refused is not None:
                    raise _as_told(refused)
                part, cursor = merged(
                    _KEYS[route.path], [each.content for each in told], min(limit - len(rows), AT_ONCE * len(told))
                )
                rows += part
                arguments["cursor"] = cursor or ""
            if cursor is None and left:
                rows = []
                break
        meta: dict[str, Any] = {"limit": limit, "hasnext": cursor is not None, "silent": silent}
        if not call.arguments.get("cursor"):
            meta["page"] = number
        counts = {each.node: each.content["meta"].get("count") for each in told}
        if None not in counts.values():
            meta |= {"count": sum(counts.values()), "nodes": counts}
        if cursor is not None:
            meta["cursor"] = cursor
        return answer({"data": rows, "meta": meta})


_ONE = f"{CLIENTS_PREFIX}/{{clientid}}"


def merged(fields: Sequence[str], pages: Sequence[Mapping[str, Any]], limit: int) -> tuple[list[Any], str | None]:
    """Merge pages of several members into one, in the order of these fields. Return it, and the cursor to the next one.

    Entries at the same place stay together, so there may be more than ``limit`` of them.
    """
    ends = [_end_of(fields, page["meta"]["cursor"]) for page in pages if page["meta"]["hasnext"]]
    end = min(ends, default=None)
    rows = sorted(
        (row for page in pages for row in page["data"] if end is None or _place_of(fields, row) <= end),
        key=lambda row: (_place_of(fields, row), row["node"]),
    )
    if len(rows) <= limit:
        return rows, None if end is None else cursor_for(*(text for is_behind, text in end))
    last = _place_of(fields, rows[limit - 1])
    while len(rows) > limit and _place_of(fields, rows[limit]) == last:
        limit += 1
    more = len(rows) > limit or end is not None
    return rows[:limit], cursor_for(*(text for _, text in last)) if more else None


#: the place of an entry in a list: for each field, whether it is behind all values, and the value
_Place = tuple[tuple[bool, str | None], ...]


def _place_of(fields: Sequence[str], row: Mapping[str, Any]) -> Any:
    return tuple((False, row[name]) for name in fields)


def _end_of(fields: Sequence[str], cursor: str) -> Any:
    parts = parts_of({"cursor": cursor}, len(fields))
    assert parts is not None
    return tuple((part is None, part) for part in parts)


def _told(node: str, found: Answer) -> _Told:
    return _Told(node, found.status, json.loads(found.body) if found.body else None)


def _is_connected(told: _Told) -> bool:
    return isinstance(told.content, dict) and told.content.get("connected") is True


def _as_told(told: _Told) -> RefusedCall:
    """Return the refusal of a member."""
    content = told.content if isinstance(told.content, dict) else {}
    return RefusedCall(
        told.status, content.get("code", "INTERNAL_ERROR"), content.get("message", f"node {told.node} has refused it"),
        field=content.get("field"), allowed=content.get("allowed"),
    )  # fmt: skip


def _nowhere(told: Sequence[_Told], silent: Sequence[str]) -> RefusedCall:
    """Return the refusal of a call about a client whom no member has, as far as is known."""
    refused = next((each for each in told if each.status != http.NOT_FOUND), None)
    if refused is None:  # the client is there, and what the call names is not
        refused = next((each for each in told if each.content.get("code") != "CLIENTID_NOT_FOUND"), None)
    if refused is not None:
        return _as_told(refused)
    if silent:
        names = ", ".join(silent)
        return unavailable(f"no member that answers has this client; no answer has come from node {names}")
    return _as_told(told[0])
