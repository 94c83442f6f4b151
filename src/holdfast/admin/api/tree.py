"""Calls about many retained messages at once: a level of the topic tree, and counts."""

from __future__ import annotations

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.lists import CONDITIONS, Tokens, search_of
from holdfast.admin.api.parameters import CURSOR, FILTER, REFUSALS
from holdfast.admin.arguments import (
    BOOLEAN,
    FLAG,
    INTEGER,
    STRING,
    TIME,
    TOPIC,
    bad_cursor,
    filter_of,
    flag_of,
    nullable,
    number_of,
    page,
    record,
    whole,
)
from holdfast.admin.call import Answer, Call, Scope, answer, bad_request
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.administration import Administration
from holdfast.retained.tree import base_of
from holdfast.scheduling.waiting import as_deferred

#: The most nodes of a page.
MOST_NODES = 1000
_LONGEST = 65_535
_NODE = record(
    {
        "name": STRING,
        "topic": STRING,
        "count": INTEGER,
        "bytes": INTEGER,
        "newest": nullable(TIME),
        "exact": BOOLEAN,
        "has_message": BOOLEAN,
        "children": BOOLEAN,
    }
)
_COUNT = record({"count": INTEGER, "bytes": INTEGER, "exact": BOOLEAN, "scanned": INTEGER})


class TreeCalls:
    """Answers calls about the topic tree."""

    def __init__(self, administration: Administration, tokens: Tokens) -> None:
        self._administration = administration
        self._tokens = tokens
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=f"{API_PREFIX}/tree",
        scope=Scope.READ,
        summary="List a page of the next level of the topic tree, with the messages at and below each node",
        parameters=(
            query("topic", TOPIC, "the topic whose next level; without it, the first level"),
            query("limit", whole(1, MOST_NODES, 100), "the most nodes of a page"),
            CURSOR,
        ),
        answers={200: Content(page(_NODE), "the page")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def level(self, call: Call) -> Answer:
        """List the next level below a topic, without one the first level. An empty topic is an empty first level."""
        arguments = call.arguments
        parent = arguments.get("topic")
        if parent is not None and (any(one in parent for one in "+#\0") or len(parent) > _LONGEST):
            allowed = "the beginning of topics, whole levels without wildcards, such as site/1"
            raise bad_request(f"topic is {allowed}", "topic", allowed)
        limit = number_of(arguments, "limit", 100, MOST_NODES)
        low = arguments.get("cursor")
        if low is not None and ("\0" in low or not low.startswith(base_of(parent)) or len(low) > _LONGEST + 2):
            raise bad_cursor()
        token = await self._tokens.of_first_page(arguments)
        found = await self._administration.tree.page(parent, low, limit)
        meta = {
            "limit": limit, "hasnext": found.next_low is not None, "cursor": found.next_low, "scanned": found.scanned,
        }  # fmt: skip
        if token is not None:
            meta["token"] = token
        return answer({"data": [node.record for node in found.nodes], "meta": meta})

    @Route(
        method="GET",
        path=f"{API_PREFIX}/count",
        scope=Scope.READ,
        summary="Count the matching messages and their bytes; if exact is false, there may be more",
        parameters=(FILTER, query("exact", FLAG, "whether all messages are counted"), *CONDITIONS),
        answers={200: Content(_COUNT, "the number")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def count(self, call: Call) -> Answer:
        """Count matching messages: exactly if they are few or if asked for, else as far as one call looks."""
        arguments = call.arguments
        administration = self._administration
        exact = flag_of(arguments, "exact")
        search = search_of(arguments, filter_of(arguments, EVERY_TOPIC), administration.now())
        if search.topic_filter == EVERY_TOPIC and search.plain:
            statistics = await administration.statistics()
            return answer({"count": statistics.count, "bytes": statistics.bytes, "exact": True, "scanned": 0})
        counted = await administration.searches.count(search, exact, call.caller)
        return answer(
            {
                "count": counted.tally.count,
                "bytes": counted.tally.bytes,
                "exact": counted.exact,
                "scanned": counted.scanned,
            }
        )
