"""A broker's parts for users and rules, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import execute
from twisted.internet.task import Clock

from holdfast.identity.authorizer import Authorizer, PresentAuthorizer
from holdfast.identity.database_rules import Rules
from holdfast.identity.rule_sources import Sources
from holdfast.identity.rules import RuleList
from holdfast.identity.users import Changes, Users
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from tests.migrations.later import MAKES
from tests.postgres import drop, empty_database

NOW = 1_800_000_000_000


class Node:
    """A broker's users and rules on a database, which other nodes may use, too."""

    def __init__(self, url: str, number: int = 1, before: RuleList | None = None, kept: bool = True) -> None:
        self.clock = Clock()
        self.store = DurableStore(
            url, node=number, reactor=self.clock, now=lambda: NOW, durability=Durability.PROCESS,
            executor=SynchronousExecutor(), reading_executor=SynchronousExecutor,
        )  # fmt: skip
        self.users = Users(self.store, now=lambda: NOW, kept=kept, required=True)
        self.sources = Sources({"file": before or RuleList(), "database": None}, (), False, frozenset({"default"}))
        self.authorizer = Authorizer(self.sources.compiled(None), groups_of=self.users.groups_of)
        self.rules = Rules(
            self.store, sources=lambda: self.sources, present=PresentAuthorizer(self.authorizer) if kept else None,
            now=lambda: NOW, in_thread=execute,
        )  # fmt: skip
        self.changes: list[Changes] = []
        self.users.on_change(self.changes.append)

    def open(self) -> Node:
        self.store.open()
        return self

    def restart(self) -> Node:
        """Close the store, and return another process on it."""
        self.store.close()
        return Node(self.url).open()

    @property
    def url(self) -> str:
        url: Any = self.store._url
        return str(url)


@pytest.fixture(params=MAKES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'holdfast.db'}"
        return
    found = empty_database()
    yield found
    drop(found)


@pytest.fixture
def node(url: str) -> Iterator[Node]:
    node = Node(url).open()
    yield node
    node.store.close()
