"""Builds the calls of the API that concern all members of a cluster: their list, and those about their clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail, succeed

from holdfast.admin.api.members import CallsOfMembers
from holdfast.admin.api.nodes import INodes
from holdfast.admin.call import RefusedCall, bad_request, not_found, unavailable
from holdfast.admin.routing import Route
from holdfast.identity.accounts import read, write
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.location import StoreUnusable
from holdfast.storage.store import DurableStore

if TYPE_CHECKING:
    from holdfast.cluster.exchange import Exchange

#: the subject of calls that members make at each other
CALLS = "calls"
#: returns the fields that a node tells of itself
Own = Callable[[], Mapping[str, Any]]


def nodes_of(durable: DurableStore, exchange: Exchange | None, own: Own) -> INodes:
    """Return the nodes. A member answers the others' questions about itself from now on."""
    return Alone(own) if exchange is None else Together(durable, exchange, own)


class Alone:
    """A broker without ``[cluster]``: one node."""

    def __init__(self, own: Own) -> None:
        self._own = own

    def nodes(self) -> Deferred[Sequence[Mapping[str, Any]]]:
        """Return this node."""
        return succeed([{**self._own(), "local": True}])

    def drain(self, _node: int, _begin: bool) -> Deferred[None]:
        """Refuse: there is no other member."""
        return fail(RefusedCall(409, "NOT_A_MEMBER", "this broker is alone: there is no other member for its clients"))


class Together:
    """The members of a cluster."""

    def __init__(self, durable: DurableStore, exchange: Exchange, own: Own) -> None:
        from holdfast.cluster import nodes

        self._durable = durable
        self._exchange = exchange
        self._own = own
        self._module = nodes
        exchange.questions.answer_with(nodes.SUBJECT, lambda _node, _body: succeed(nodes.told(self._told())))

    def _told(self) -> dict[str, Any]:
        """Return what this node tells of itself."""
        return {**self._own(), "carrier": self._exchange.carrier(), "heard": sorted(self._exchange.heard())}

    @as_deferred
    async def nodes(self) -> Sequence[Mapping[str, Any]]:
        """Return all nodes. Fails with StorageFailure, and is refused while too many questions are under way."""
        stored = await read(self._durable, self._module.read_nodes)
        answers, _ = await asked(self._exchange, self._module.SUBJECT, b"")
        return self._module.listed(stored, self._told(), answers)

    @as_deferred
    async def drain(self, node: int, begin: bool) -> None:
        """Ask a node to send its clients to others, or to serve clients again. It notices within a third of its lease.

        Fails with RefusedCall, and with StorageFailure.
        """
        from holdfast.cluster.members import UnknownNode, drain

        try:
            await write(self._durable, lambda connection: drain(connection.cursor(), node, "the cluster", begin))
        except UnknownNode as unknown:
            raise not_found(str(unknown)) from None
        except StoreUnusable as refused:
            raise RefusedCall(409, "CONFLICT", str(refused)) from None


class FiguresOfMembers:
    """The figures of all members, by their topics below ``$SYS/cluster/``."""

    def __init__(self, nodes: INodes) -> None:
        self._nodes = nodes

    @as_deferred
    async def ask(self) -> Mapping[str, str]:
        """Return the figures. Fails as :meth:`Together.nodes` does."""
        nodes = [node for node in await self._nodes.nodes() if node["state"] != "left"]
        figures: dict[str, Any] = {
            "members": sum(node["state"] in ("member", "draining") for node in nodes),
            "silent": sum(_state_of(node) == "silent" for node in nodes),
            "clients/total": sum(node.get("connections", 0) for node in nodes),
            "clients/connected": sum(node.get("live_connections", 0) for node in nodes),
        }
        for node in nodes:
            root = f"nodes/{node['node']}"
            figures |= {f"{root}/state": _state_of(node), f"{root}/lag": node["lag"]}
            if "live_connections" in node:
                figures[f"{root}/clients/total"] = node["connections"]
                figures[f"{root}/clients/connected"] = node["live_connections"]
            else:
                figures[f"{root}/clients/connected"] = figures[f"{root}/clients/total"] = "unknown"
        return {topic: str(value) for topic, value in figures.items()}


def _state_of(node: Mapping[str, Any]) -> str:
    return "silent" if node["silent"] else str(node["state"])


def at_all_members(routes: Sequence[Route], node: int, exchange: Exchange | None) -> Sequence[Route]:
    """Return the calls about clients as all members answer them together, if there are others."""
    if exchange is None:
        return routes
    shared = CallsOfMembers(routes, str(node), partial(asked, exchange, CALLS))
    exchange.questions.answer_with(CALLS, lambda _node, body: shared.answer(body))
    return shared.routes


@as_deferred
async def asked(exchange: Exchange, subject: str, body: bytes) -> tuple[Mapping[int, bytes], Sequence[int]]:
    """Ask all other living members; return the answers by node, and the silent ones. Raises RefusedCall."""
    from holdfast.cluster.questions import TooManyQuestions

    try:
        answers = await exchange.ask(subject, body)
    except TooManyQuestions as many:
        raise unavailable(str(many)) from None
    except ValueError as long:
        raise bad_request(str(long)) from None
    return answers.by_node, sorted(answers.silent)
