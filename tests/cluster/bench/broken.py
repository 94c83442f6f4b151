"""Nodes with one broken line each: a bench that finds nothing in them has no teeth.

How it works. A node gets the name of its break in the environment, and the folder ``breaking`` in its path, whose
``sitecustomize`` calls :func:`install`. When the module of the break has been imported, one function of it is
replaced. The product knows nothing of this. If the function is not there, the node ends: a break that breaks nothing
proves nothing.

Of the design's nine breaks, "a repeated commit without ``published``" has another form here. A commit that is repeated
writes its rows again; but each reader has its cursor, and reads no number twice. So the cursor is what is broken.

This module is imported in the nodes, before anything else: at its top it imports the standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

_VARIABLE = "HOLDFAST_BENCH_BROKEN"
_FOLDER = Path(__file__).parent / "breaking"

#: makes the function that stands in for the one that it gets
Replace = Callable[[Any], Any]


class Break(NamedTuple):
    """A function of a module, by its name there, what stands in for it, and the ``bus`` on which it matters."""

    module: str
    name: str
    replace: Replace
    what: str
    bus: str = "postgres"


def _no_gap_check(take: Any) -> Any:
    """Take the next message of a link whatever its number is."""

    @wraps(take)
    def broken(self: Any, datagram: bytes) -> None:
        from holdfast.cluster.links import _HEAD

        if len(datagram) >= _HEAD.size:
            node, _, _, _, series, number, kind = _HEAD.unpack_from(datagram)
            link = self._links.get(node)
            if link is not None and link.series == series and kind == 0 and number > link.taken + 1:
                link.taken = number - 1
            elif link is not None and link.series == series and kind == 1:
                link.taken = max(number, link.taken)
        take(self, datagram)

    return broken


def _no_gate(ticket: Any) -> Any:
    """Let SUBACK leave at once."""

    @wraps(ticket)
    def broken(self: Any, version: int) -> Any:
        from holdfast.core.tickets import COMMITTED

        ticket(self, version)
        return COMMITTED

    return broken


def _not_settled(take_interest: Any) -> Any:
    """Answer that an interest has effect before older messages are stored."""

    @wraps(take_interest)
    def broken(self: Any, *arguments: Any) -> None:
        from holdfast.core.tickets import COMMITTED

        retained = self._retained
        self._retained = SimpleNamespace(store=SimpleNamespace(flushed=lambda _: COMMITTED))
        try:
            take_interest(self, *arguments)
        finally:
            self._retained = retained

    return broken


def _no_rows(cross: Any) -> Any:
    """Acknowledge without the rows."""

    @wraps(cross)
    def broken(self: Any, *arguments: Any) -> Any:
        from holdfast.core.tickets import COMMITTED

        cross(self, *arguments)
        return COMMITTED

    return broken


def _no_cursor(apply: Any) -> Any:
    """Store deliveries without the cursors."""

    @wraps(apply)
    def broken(self: Any, cursor: Any, writes: Sequence[Any]) -> None:
        return None

    return broken


def _no_second_look(read_missed: Any) -> Any:
    """Find nothing that came while a Session moved."""

    @wraps(read_missed)
    def broken(*arguments: Any) -> Any:
        from collections import defaultdict

        return defaultdict(list)

    return broken


def _before_commit(cross: Any) -> Any:
    """Send retained messages to other nodes before they are committed."""

    @wraps(cross)
    def broken(self: Any, message: Any, destinations: Any, replaces: bool) -> Any:
        if message.retain and destinations.rows:
            self.runs.add(message, destinations.rows)
        return cross(self, message, destinations, replaces)

    return broken


def _no_deadline(check: Any) -> Any:
    """Never ask whether the lease has ended."""

    @wraps(check)
    def broken(self: Any, seconds: float | None = None) -> Any:
        return None

    return broken


def _any_holder(read_homes: Any) -> Any:
    """Never find that another node has a Will of a client."""

    @wraps(read_homes)
    def broken(*arguments: Any) -> Any:
        from attrs import evolve

        return {client_id: evolve(home, wills=()) for client_id, home in read_homes(*arguments).items()}

    return broken


BREAKS = {
    "no-gap-check": Break("holdfast.cluster.links", "Links.take", _no_gap_check, "lost messages of a link"),
    "no-gate": Break("holdfast.cluster.interest", "OwnInterest._ticket", _no_gate, "SUBACK without the gate"),
    "applied-too-early": Break(
        "holdfast.cluster.exchange", "Exchange._take_interest", _not_settled, "APPLIED before older messages settled"
    ),
    "no-rows": Break("holdfast.cluster.exchange", "Exchange._cross", _no_rows, "PUBACK without the rows"),
    "no-cursor": Break("holdfast.cluster.crossing", "CursorKind.apply", _no_cursor, "rows that are applied again"),
    "no-second-look": Break(
        "holdfast.cluster.entering", "read_missed", _no_second_look, "a move without a second look"
    ),
    "before-commit": Break(
        "holdfast.cluster.exchange", "Exchange._cross", _before_commit, "retained copies before their commit"
    ),
    "no-deadline": Break("holdfast.cluster.membership", "Membership.hold", _no_deadline, "no check at wake-up"),
    "any-holder": Break("holdfast.cluster.whereabouts", "_read_homes", _any_holder, "a Will without its holder"),
}


def environment_of(name: str | None) -> dict[str, str]:
    """Return the environment of nodes that run with a break; none without a name."""
    if name is None:
        return {}
    path = os.pathsep.join(filter(None, (str(_FOLDER), os.environ.get("PYTHONPATH"))))
    return {_VARIABLE: name, "PYTHONPATH": path}


def install(name: str) -> None:
    """Break the product in this process, as soon as the module is imported. Raises KeyError for an unknown name."""
    sys.meta_path.insert(0, _Finder(BREAKS[name]))


class _Finder(MetaPathFinder):
    """Finds the module of a break, with a loader that breaks it."""

    def __init__(self, chosen: Break) -> None:
        self._chosen = chosen

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module as the path has it, with another loader."""
        if fullname != self._chosen.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _BreakingLoader(spec.loader, self._chosen)
        return spec


class _BreakingLoader(Loader):
    """Loads a module as another loader does, and then breaks it."""

    def __init__(self, loader: Loader, chosen: Break) -> None:
        self._loader = loader
        self._chosen = chosen

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the other loader do it."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and replace the function. Raises AttributeError if there is none."""
        self._loader.exec_module(module)
        *path, name = self._chosen.name.split(".")
        owner: Any = module
        for each in path:
            owner = getattr(owner, each)
        setattr(owner, name, self._chosen.replace(getattr(owner, name)))
        print(f"BROKEN: {self._chosen.what}", flush=True)
