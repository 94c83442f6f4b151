"""Finds the routes of a path: a tree of its segments, where a value in the path fits any segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from holdfast.admin.calls.arguments import decoded
from holdfast.admin.routing.route import Route


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
