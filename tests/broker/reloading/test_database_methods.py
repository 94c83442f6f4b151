"""A reload that begins or ends to use the users and the rules in the database."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import execute
from twisted.internet.task import Clock

from holdfast.broker.identity import compose_accounts
from holdfast.config import Config, load
from holdfast.identity.interfaces import Principal
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from tests.storage.doubles import fresh_file, result_of

LISTENER = "[listeners.a]\nallow_anonymous = true\n"
USERS = '[authentication.p]\ntype = "database"\n'
RULES = '[authorization]\nsources = ["r"]\n[authorization.r]\ntype = "database"\n'
ALICE = Principal("c", "alice", groups=frozenset({"g"}))


@pytest.mark.parametrize("begins_with", [LISTENER, LISTENER + USERS + RULES])
def test_a_reload_uses_the_present_users_and_rules_of_the_database(tmp_path: Path, begins_with: str) -> None:
    """Also those that were changed while no method and no source asked for them."""

    def config(text: str) -> Config:
        file = tmp_path / "holdfast.toml"
        file.write_text(text)
        return load(file)

    clock = Clock()
    durable = DurableStore(
        f"sqlite:///{fresh_file(tmp_path)}", node=1, reactor=clock, now=lambda: 1, durability=Durability.PROCESS,
        executor=SynchronousExecutor(), reading_executor=SynchronousExecutor,
    )  # fmt: skip
    accounts = compose_accounts(config(begins_with), durable=durable, reactor=clock, now=lambda: 1)
    accounts.rules._in_thread = execute
    durable.open()

    def may(topic: str) -> bool:
        return bool(accounts.authorizer.may_publish(ALICE, topic, 0, True))

    def keeps(topic: str) -> bool:
        return accounts.authorizer.may_keep("alice", "gone", topic)

    result_of(accounts.users.add("alice", "hash", frozenset({"g"})))
    fields = {"groups": ["g"], "action": ["publish", "retain"], "topics": ["t/#"], "allow": True}
    result_of(accounts.rules.add(fields, None))
    accounts.prepare(config(LISTENER + USERS + RULES))()
    assert (may("t/a"), may("u")) == (True, False)
    assert (keeps("t/a"), keeps("u")) == (True, False)
    rule = result_of(accounts.rules.add({**fields, "topics": ["u"]}, None))
    assert (may("u"), keeps("u")) == (True, True)
    accounts.prepare(config(LISTENER))()
    assert (may("u"), may("v")) == (True, True)
    result_of(accounts.rules.remove(rule.number))
    assert may("u")
    accounts.prepare(config(LISTENER + USERS + RULES))()
    assert (may("t/a"), may("u"), keeps("u")) == (True, False, False)
    result_of(durable.close())
