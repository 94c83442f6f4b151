"""The calls about retained messages. Paths and shapes are those of EMQX, with more fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.export import ExportCalls
from holdfast.admin.api.history import HistoryCalls
from holdfast.admin.api.lists import Tokens
from holdfast.admin.api.merging import MergeCalls
from holdfast.admin.api.messages import MessageCalls
from holdfast.admin.api.parameters import REFUSALS
from holdfast.admin.api.policies import PolicyCalls
from holdfast.admin.api.replays import ReplayCalls
from holdfast.admin.api.revisions import RevisionCalls
from holdfast.admin.api.settings import Settings
from holdfast.admin.api.tree import TreeCalls
from holdfast.admin.arguments import BOOLEAN, INTEGER, STRING, record
from holdfast.admin.call import Answer, Call, Scope, answer
from holdfast.admin.jobs import Jobs
from holdfast.admin.routing import Content, Route, routes_of
from holdfast.changes.history import RetainedHistory
from holdfast.changes.restoring import Restorer
from holdfast.changes.telemetry import Telemetry
from holdfast.changes.watch import ChangeWatch
from holdfast.core.tickets import CommitTicket
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.administration import Administration
from holdfast.retained.importing import Merger
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.waiting import as_deferred

_INFO = record(
    {
        "count": INTEGER,
        "bytes": INTEGER,
        "replays": INTEGER,
        "node": INTEGER,
        "store": STRING,
        "available": BOOLEAN,
        "api": record({"set": INTEGER, "cleared": INTEGER, "imported": INTEGER}),
    }
)


class RetainerAPI:
    """The routes of all calls about retained messages.

    ``store`` names the database. ``health`` returns its ``damage`` (None if there is none) and its ``quarantined``
    files. Without a ``merger``, there is no call to merge staged messages, and without ``changes`` no list has a
    token.
    """

    def __init__(
        self,
        *,
        administration: Administration,
        retained: RetainedMessages,
        replays: ReplayRegistry,
        history: RetainedHistory,
        telemetry: Telemetry,
        restorer: Restorer,
        settings: Settings,
        store: str,
        jobs: Jobs,
        health: Callable[[], Mapping[str, object]] = dict,
        merger: Merger | None = None,
        changes: ChangeWatch | None = None,
    ) -> None:
        self._replays = replays
        self.settings = settings
        self._administration = administration
        self._merger = merger
        self._store = store
        self._health = health
        tokens = Tokens(changes)

        def flushed() -> CommitTicket:
            telemetry.hand_over()
            ticket: CommitTicket = retained.store.flushed()
            return ticket

        self.routes = (
            *ReplayCalls(retained.totals, replays, settings).routes,
            *PolicyCalls(settings, flushed).routes,
            *MessageCalls(administration, history, tokens, jobs).routes,
            *ExportCalls(administration, history).routes,
            *TreeCalls(administration, tokens).routes,
            *RevisionCalls(history, administration.now, administration.pause).routes,
            *HistoryCalls(history, telemetry, restorer, administration.now, administration.pause, jobs).routes,
            *(MergeCalls(merger).routes if merger is not None else ()),
            *routes_of(self),
        )

    @Route(
        method="GET",
        path=f"{API_PREFIX}/info",
        scope=Scope.READ,
        summary="Show number and size of retained messages, the database, and the changes made through the API",
        answers={200: Content(_INFO, "the numbers")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def info(self, _call: Call) -> Answer:
        """Answer with the number and size of retained messages, and the changes made through the API."""
        administration = self._administration
        statistics = await administration.statistics()
        content: dict[str, Any] = {
            "count": statistics.count,
            "bytes": statistics.bytes,
            "replays": len(self._replays),
            "node": administration.node,
            "store": self._store,
            "available": administration.available,
            **self._health(),
            "api": {**administration.counts, "imported": 0 if self._merger is None else self._merger.imported},
        }
        return answer(content)
