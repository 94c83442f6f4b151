"""Calls that list, show and kick clients, and list their subscriptions and messages. Paths and fields are EMQX's."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.address import TRACE_PATH
from holdfast.admin.api.shown_clients import (
    CLIENT,
    SUBSCRIPTION,
    WAITING,
    shown_client,
    shown_message,
    shown_subscription,
)
from holdfast.admin.arguments import (
    ANYTHING,
    CURSOR_SCHEMA,
    STRING,
    TOPIC_FILTER,
    array,
    bad_cursor,
    check_fields,
    choice_of,
    digits_of,
    number_of,
    object_of,
    one_of,
    optional_filter_of,
    page,
    request,
    whole,
)
from holdfast.admin.call import DONE, NDJSON, Answer, Call, RefusedCall, Scope, answer, bad_request
from holdfast.admin.routing import NOTHING, Content, Route, in_path, query, routes_of
from holdfast.core.clients import (
    ClientSearch,
    ClientView,
    ConnState,
    Found,
    SubscriptionSearch,
    SubscriptionView,
    Waiting,
)
from holdfast.core.tickets import CommitTicket
from holdfast.scheduling.waiting import as_deferred, durable

T = TypeVar("T")
K = TypeVar("K")

CLIENTS_PREFIX = "/api/v5/clients"
SUBSCRIPTIONS_PREFIX = "/api/v5/subscriptions"

#: limits of a page: its entries, and the bytes of its payloads
MOST_LISTED = 1000
MOST_BYTES = 1 << 20
#: the limit of a list of subscriptions without pages
MOST_OF_CLIENT = 2000
USUAL_LISTED = 100
#: the most reads, each of at most MOST_LISTED entries, that lead to a page by its number
MOST_READS = 200

_PAGE = query("page", whole(1, 2**53, 1), "the number of the page, instead of a cursor; the entries before it are read")
_CLIENT_ID = in_path("clientid", STRING, "the Client Identifier, percent-encoded")
_LIMIT = query("limit", whole(1, MOST_LISTED, USUAL_LISTED), "the highest number of entries in a page")
_CURSOR = query("cursor", CURSOR_SCHEMA, "meta.cursor of the previous page")
_UNSUBSCRIBE = '{"topic": "plant/#"}'
_STATES = tuple(each.value for each in ConnState)
_PAYLOAD_FORMS = ("none", "base64")
_PAYLOAD_ARGUMENT = query("payload", one_of(*_PAYLOAD_FORMS), "base64: with the payloads of the messages")


class ClientCalls:
    """Answers calls about clients.

    ``zone_of`` returns the zone of a listener, None for an unknown listener.
    """

    def __init__(self, clients: IClients, node: str, zone_of: Callable[[str], str | None]) -> None:
        self._clients = clients
        self._node = node
        self._zone_of = zone_of
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=CLIENTS_PREFIX,
        scope=Scope.READ,
        summary="List the clients with a Session, connected or not, sorted by Client Identifier",
        parameters=(
            _PAGE,
            _LIMIT,
            _CURSOR,
            query("clientid", STRING, "the whole Client Identifier"),
            query("like_clientid", STRING, "a part of the Client Identifier"),
            query("username", STRING, "the whole User Name"),
            query("like_username", STRING, "a part of the User Name"),
            query("ip_address", STRING, "the IP address"),
            query("conn_state", {"type": "string", "enum": list(_STATES)}, "connected or disconnected"),
            query("listener", STRING, "the name of the listener of its connection"),
        ),
        answers={200: Content(page(CLIENT), "the page; a short or empty page need not be the last one")},
    )
    @as_deferred
    async def list_clients(self, call: Call) -> Answer:
        """List clients."""
        arguments = call.arguments
        state = choice_of(arguments, "conn_state", _STATES) if "conn_state" in arguments else None
        search = ClientSearch(
            client_id=arguments.get("clientid"),
            like_client_id=arguments.get("like_clientid"),
            username=arguments.get("username"),
            like_username=arguments.get("like_username"),
            address=arguments.get("ip_address"),
            state=None if state is None else ConnState(state),
            listener=arguments.get("listener"),
        )
        parts = parts_of(arguments, 1)
        after = "" if parts is None else str(parts[0])
        found = await _found(arguments, partial(self._clients.clients, search), after)
        shown = [shown_client(each, self._node, self._zone_of(each.listener)) for each in found.items]
        more = _place_of(arguments, self._clients.client_count if search == ClientSearch() else None)
        return _page(shown, _limit_of(arguments), None if found.after is None else cursor_for(found.after), more)

    @Route(
        method="GET",
        path=f"{CLIENTS_PREFIX}/{{clientid}}",
        scope=Scope.READ,
        summary="Show a client",
        parameters=(_CLIENT_ID,),
        answers={200: Content(CLIENT, "the client")},
    )
    def one(self, call: Call) -> Deferred[Answer]:
        """Show a client."""
        client = self._clients.client(call.arguments["clientid"])
        if client is None:
            raise _unknown(call)
        return succeed(answer(shown_client(client, self._node, self._zone_of(client.listener))))

    @Route(
        method="DELETE",
        path=f"{CLIENTS_PREFIX}/{{clientid}}",
        scope=Scope.ADMIN,
        summary="Kick a client: end its connection and its Session, and publish its Will",
        parameters=(_CLIENT_ID,),
        answers={204: NOTHING},
        finishes=True,
    )
    @as_deferred
    async def kick(self, call: Call) -> Answer:
        """End the connection and the Session of a client."""
        ticket = self._clients.kick(call.arguments["clientid"])
        if ticket is None:
            raise _unknown(call)
        await durable(ticket)
        return DONE

    @Route(
        method="POST",
        path=f"{CLIENTS_PREFIX}/{{clientid}}/unsubscribe",
        scope=Scope.ADMIN,
        summary="End a subscription of a client, connected or not. The client is not told: MQTT has no packet for it",
        parameters=(_CLIENT_ID,),
        body=Content(request({"topic": TOPIC_FILTER}, ("topic",)), "the Topic Filter, with its $share/NAME/"),
        answers={204: NOTHING},
        finishes=True,
    )
    @as_deferred
    async def unsubscribe(self, call: Call) -> Answer:
        """End a subscription."""
        fields = object_of(call, _UNSUBSCRIBE)
        check_fields(fields, ("topic",))
        topic = fields.get("topic")
        if not isinstance(topic, str):
            raise bad_request(f"topic is missing; the body is a JSON object such as {_UNSUBSCRIBE}", "topic")
        client_id = call.arguments["clientid"]
        if self._clients.client(client_id) is None:
            raise _unknown(call)
        ticket = self._clients.unsubscribe(client_id, topic)
        if ticket is None:
            raise RefusedCall(404, "NOT_FOUND", f"the client has no subscription to {topic[:200]!a}")
        await durable(ticket)
        return DONE

    @Route(
        method="GET",
        path=f"{CLIENTS_PREFIX}/{{clientid}}/subscriptions",
        scope=Scope.READ,
        summary="List the subscriptions of a client; for more than 2000, use /subscriptions?clientid=",
        parameters=(_CLIENT_ID,),
        answers={200: Content(array(SUBSCRIPTION), "the subscriptions")},
    )
    @as_deferred
    async def subscriptions_of(self, call: Call) -> Answer:
        """List the subscriptions of a client, without pages, as EMQX does."""
        client_id = call.arguments["clientid"]
        if self._clients.client(client_id) is None:
            raise _unknown(call)
        found = await self._clients.subscriptions(SubscriptionSearch(client_id=client_id), ("", ""), MOST_OF_CLIENT)
        if found.after is not None:
            raise bad_request(
                f"the client has more than {MOST_OF_CLIENT} subscriptions; ask for pages of them:"
                f" GET {SUBSCRIPTIONS_PREFIX}?clientid="
            )
        return answer([shown_subscription(each, self._node) for each in found.items])

    @Route(
        method="GET",
        path=f"{CLIENTS_PREFIX}/{{clientid}}/mqueue_messages",
        scope=Scope.READ,
        summary="List the messages in the queue of a client, in the order in which it will get them",
        parameters=(_CLIENT_ID, _LIMIT, _CURSOR, _PAYLOAD_ARGUMENT),
        answers={200: Content(page(WAITING), "the page")},
    )
    def queued(self, call: Call) -> Deferred[Answer]:
        """List queued messages."""
        return succeed(self._waiting(call, self._clients.queued))

    @Route(
        method="GET",
        path=f"{CLIENTS_PREFIX}/{{clientid}}/inflight_messages",
        scope=Scope.READ,
        summary="List the messages that a client has not acknowledged, with their Packet Identifiers",
        parameters=(_CLIENT_ID, _LIMIT, _CURSOR, _PAYLOAD_ARGUMENT),
        answers={200: Content(page(WAITING), "the page")},
    )
    def inflight(self, call: Call) -> Deferred[Answer]:
        """List messages in flight."""
        return succeed(self._waiting(call, self._clients.inflight))

    @Route(
        method="GET",
        path=SUBSCRIPTIONS_PREFIX,
        scope=Scope.READ,
        summary="List subscriptions, sorted by Client Identifier and Topic Filter",
        parameters=(
            _PAGE,
            _LIMIT,
            _CURSOR,
            query("clientid", STRING, "subscriptions of this client"),
            query("topic", TOPIC_FILTER, "subscriptions to this Topic Filter, shared or not"),
            query(
                "match_topic",
                TOPIC_FILTER,
                "subscriptions that match this topic, or whose topics all match this Topic Filter",
            ),
            query("share_group", STRING, "shared subscriptions with this ShareName"),
            query("qos", whole(0, 2), "subscriptions with this maximum QoS"),
        ),
        answers={200: Content(page(SUBSCRIPTION), "the page; a short page need not be the last one")},
    )
    @as_deferred
    async def list_subscriptions(self, call: Call) -> Answer:
        """List subscriptions."""
        arguments = call.arguments
        qos = choice_of(arguments, "qos", ("0", "1", "2")) if "qos" in arguments else None
        search = SubscriptionSearch(
            client_id=arguments.get("clientid"),
            topic_filter=optional_filter_of(arguments, "topic"),
            matching=optional_filter_of(arguments, "match_topic"),
            share=arguments.get("share_group"),
            qos=None if qos is None else int(qos),
        )
        parts = parts_of(arguments, 2)
        after = ("", "") if parts is None else (str(parts[0]), parts[1])
        found = await _found(arguments, partial(self._clients.subscriptions, search), after)
        shown = [shown_subscription(each, self._node) for each in found.items]
        more = _place_of(arguments, self._clients.subscription_count if search == SubscriptionSearch() else None)
        return _page(shown, _limit_of(arguments), None if found.after is None else cursor_for(*found.after), more)

    def _waiting(self, call: Call, read: Callable[[str, int, int, int], Waiting | None]) -> Answer:
        arguments = call.arguments
        payload = choice_of(arguments, "payload", _PAYLOAD_FORMS)
        position = digits_of(arguments.get("cursor", "0"))
        if position is None:
            raise bad_cursor()
        limit = _limit_of(arguments)
        found = read(arguments["clientid"], position, limit, MOST_BYTES)
        if found is None:
            raise _unknown(call)
        shown = [shown_message(each, payload == "base64") for each in found.messages]
        cursor = None if found.next_position is None else str(found.next_position)
        return _page(shown, limit, cursor, {"unlisted": found.unlisted} if found.unlisted else {})


def _limit_of(arguments: Mapping[str, str]) -> int:
    return number_of(arguments, "limit", USUAL_LISTED, MOST_LISTED)


async def _found(
    arguments: Mapping[str, str], read: Callable[[K, int], Deferred[Found[T, K]]], after: K
) -> Found[T, K]:
    """Read the page behind a key, or the page of a number: the entries before it are skipped, and it is not short."""
    limit = _limit_of(arguments)
    number = number_of(arguments, "page", 1, 2**53)
    if "page" in arguments and arguments.get("cursor"):
        raise bad_request("page is not allowed together with cursor", "page", "nothing")
    skipped = (number - 1) * limit
    page: list[T] = []
    for _ in range(MOST_READS):
        found: Found[T, K] = await read(after, min(skipped, MOST_LISTED) if skipped else limit - len(page))
        if skipped:
            skipped -= len(found.items)
        else:
            page += found.items
        if found.after is None or len(page) == limit or "page" not in arguments:
            return Found(page, found.after)
        after = found.after
    allowed = f"a page among the first {MOST_READS * MOST_LISTED} entries; use cursor instead"
    raise bad_request(f"page is {allowed}", "page", allowed)


def _place_of(arguments: Mapping[str, str], count: int | None) -> dict[str, Any]:
    """Return the number of a page, unless a cursor led to it, and the number of all entries, if it is known."""
    page = {} if arguments.get("cursor") else {"page": number_of(arguments, "page", 1, 2**53)}
    return page if count is None else {**page, "count": count}


def _page(data: list[dict[str, Any]], limit: int, cursor: str | None, more: Mapping[str, Any] | None = None) -> Answer:
    meta: dict[str, Any] = {"limit": limit, "hasnext": cursor is not None, **(more or {})}
    if cursor is not None:
        meta["cursor"] = cursor
    return answer({"data": data, "meta": meta})


def _unknown(call: Call) -> RefusedCall:
    return RefusedCall(404, "CLIENTID_NOT_FOUND", f"there is no client {call.arguments['clientid'][:200]!a}")


# The cursors of lists of clients and subscriptions: opaque text, which callers copy unchanged.


#: a cursor is not longer than a Client Identifier and a Topic Filter can be, escaped
_LONGEST = 1 << 20


def cursor_for(*parts: str | None) -> str:
    """Return the cursor with these parts."""
    return urlsafe_b64encode(json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()).decode().rstrip("=")


def parts_of(arguments: Mapping[str, str], count: int) -> list[str | None] | None:
    """Return the parts of the cursor, None without one. Only the last part may be null."""
    cursor = arguments.get("cursor", "")
    if not cursor:
        return None
    if len(cursor) > _LONGEST or not cursor.isascii():
        raise bad_cursor()
    try:
        parts = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        raise bad_cursor() from None
    if not isinstance(parts, list) or len(parts) != count or not all(isinstance(each, str) for each in parts[:-1]):
        raise bad_cursor()
    if not isinstance(parts[-1], str) and not (parts[-1] is None and count > 1):
        raise bad_cursor()
    return parts


# The clients of the broker, as the calls see them.


#: a Client Identifier and one of its Topic Filters; None: behind all of them
Place = tuple[str, str | None]


class IClients(Protocol):
    """Shows clients, and kicks them."""

    @property
    def client_count(self) -> int:
        """How many clients have a Session."""

    @property
    def subscription_count(self) -> int:
        """How many subscriptions they have, shared ones too."""

    def client(self, client_id: str) -> ClientView | None:
        """Return a client, None if it has no Session."""

    def clients(self, search: ClientSearch, after: str, limit: int) -> Deferred[Found[ClientView, str]]:
        """Return the next clients behind this Client Identifier ("" for the first ones)."""

    def subscriptions(
        self, search: SubscriptionSearch, after: Place, limit: int
    ) -> Deferred[Found[SubscriptionView, Place]]:
        """Return the next subscriptions behind this place."""

    def queued(self, client_id: str, position: int, limit: int, most_bytes: int) -> Waiting | None:
        """Return queued messages from a position on; None if the client has no Session."""

    def inflight(self, client_id: str, position: int, limit: int, most_bytes: int) -> Waiting | None:
        """Return messages in flight from a Packet Identifier on; None if the client has no Session."""

    def kick(self, client_id: str) -> CommitTicket | None:
        """End the connection and the Session of a client; None if it has none."""

    def unsubscribe(self, client_id: str, topic_filter: str) -> CommitTicket | None:
        """End a subscription of a client, and its replay; None if there is none."""


# The call that traces one client: ``GET /api/v5/trace`` answers with a line for each packet.


#: seconds
LONGEST_TRACE = 24 * 3600
USUAL_TRACE = 300
#: bytes of each payload
MOST_PAYLOAD, USUAL_PAYLOAD = 65_536, 128


class ITrace(Protocol):
    """One trace."""

    def more(self) -> Deferred[bytes]:
        """Fire with the next lines; with b"" when the trace is over."""


class ITraces(Protocol):
    """Begins and ends traces."""

    def begin(self, client_id: str, seconds: float, payload_bytes: int) -> ITrace:
        """Trace a client for so many seconds."""

    def end(self, client_id: str, trace: Any) -> None:
        """End a trace, if it is not over."""


class TraceAPI:
    """Traces clients. ``cannot`` is raised for a trace that cannot begin."""

    def __init__(self, traces: ITraces, cannot: type[Exception]) -> None:
        self._traces = traces
        self._cannot = cannot
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=TRACE_PATH,
        scope=Scope.ADMIN,
        summary="Follow the packets that one client sends and gets",
        parameters=(
            query("clientid", {**STRING, "minLength": 1}, "the Client Identifier", required=True),
            query("seconds", whole(1, LONGEST_TRACE, USUAL_TRACE), "how long the trace runs"),
            query("payload_bytes", whole(0, MOST_PAYLOAD, USUAL_PAYLOAD), "how much of each payload is shown"),
        ),
        answers={200: Content(ANYTHING, "a JSON object a line; empty lines keep the connection", NDJSON)},
        has_deadline=False,
    )
    def trace(self, call: Call) -> Deferred[Answer]:
        """Answer with the lines of a trace. It ends after its time, or when the caller leaves."""
        client_id = call.arguments["clientid"]
        if not client_id:
            raise bad_request("clientid is empty", "clientid", "a Client Identifier")
        seconds = number_of(call.arguments, "seconds", USUAL_TRACE, LONGEST_TRACE)
        shown = call.arguments.get("payload_bytes", str(USUAL_PAYLOAD))
        payload_bytes = 0 if shown == "0" else number_of(call.arguments, "payload_bytes", USUAL_PAYLOAD, MOST_PAYLOAD)
        try:
            trace = self._traces.begin(client_id, seconds, payload_bytes)
        except self._cannot as error:
            raise RefusedCall(http.CONFLICT, "CONFLICT", str(error)) from None
        return succeed(Answer(content_type=NDJSON, more=trace.more, stopped=lambda: self._traces.end(client_id, trace)))
