"""Calls about many retained messages at once: a level of the topic tree, and counts."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.arguments import filter_of, flag_of, number_of
from holdfast.admin.calls import Answer, Call, Routes, answer, bad_request
from holdfast.admin.conditions import CONDITIONS, search_of
from holdfast.retained.administration import Administration
from holdfast.retained.queries.tree import TreeNode, base_of
from holdfast.retained.records import date_of
from holdfast.topics import EVERY_TOPIC

#: The most nodes of a page.
MOST_NODES = 1000
_LONGEST = 65_535


class TreeCalls:
    """Answers calls about the topic tree."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self.routes: Routes = {
            "/tree": {"GET": (self.level, ("topic", "limit", "cursor"))},
            "/count": {"GET": (self.count, ("topic", "exact", *CONDITIONS))},
        }

    @inlineCallbacks
    def level(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """List the next level below a topic, without one the first level. An empty topic is an empty first level."""
        arguments = call.arguments
        parent = arguments.get("topic")
        if parent is not None and (any(one in parent for one in "+#\0") or len(parent) > _LONGEST):
            raise bad_request("topic is the beginning of topics, whole levels without wildcards, such as site/1")
        limit = number_of(arguments, "limit", 100, MOST_NODES)
        low = arguments.get("cursor")
        if low is not None and ("\0" in low or not low.startswith(base_of(parent)) or len(low) > _LONGEST + 2):
            raise bad_request("cursor: copy it unchanged from meta.cursor")
        page = yield self._administration.tree.page(parent, low, limit)
        meta = {
            "limit": limit, "hasnext": page.next_low is not None, "cursor": page.next_low, "scanned": page.scanned,
        }  # fmt: skip
        return answer({"data": [_record_of(node) for node in page.nodes], "meta": meta})

    @inlineCallbacks
    def count(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Count matching messages: exactly if they are few or if asked for, else as far as one call looks."""
        arguments = call.arguments
        administration = self._administration
        search = search_of(arguments, filter_of(arguments, EVERY_TOPIC), administration.now())
        if search.topic_filter == EVERY_TOPIC and search.plain:
            statistics = yield administration.statistics()
            return answer({"count": statistics.count, "bytes": statistics.bytes, "exact": True, "scanned": 0})
        exact = flag_of(arguments, "exact")
        counted = yield administration.searches.count(search, exact, call.operator)
        return answer(
            {
                "count": counted.tally.count,
                "bytes": counted.tally.bytes,
                "exact": counted.exact,
                "scanned": counted.scanned,
            }
        )


def _record_of(node: TreeNode) -> dict[str, Any]:
    tally = node.tally
    return {
        "name": node.name,
        "topic": node.topic,
        "count": tally.count,
        "bytes": tally.bytes,
        "newest": None if tally.newest is None else date_of(tally.newest),
        "exact": node.exact,
        "has_message": node.has_message,
        "children": node.has_children,
    }
