"""Builds the parts that keep users and rules in the database, the authorizer that asks them, and their API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.threads import deferToThreadPool

from holdfast.accounts.following import Following
from holdfast.accounts.keys import Keys
from holdfast.accounts.renewal import Renewal
from holdfast.accounts.rule_rows import rules_in
from holdfast.accounts.rules import Rules
from holdfast.accounts.users import Users
from holdfast.admin.accounts.keys import KeyAPI
from holdfast.admin.accounts.rules import RuleAPI
from holdfast.admin.accounts.users import HashPassword, UserAPI
from holdfast.admin.routing.route import Route
from holdfast.auth.passwords.hashes import HashParameters
from holdfast.authorization.present import PresentAuthorizer
from holdfast.authorization.sources.loading import authorizer_of, read_sources
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.scheduling.gradual_freeing import GradualFreeing
from holdfast.storage.store import DurableStore


@frozen(kw_only=True)
class Accounts:
    """The parts that keep users and rules, and the authorizer of the broker."""

    users: Users
    rules: Rules
    keys: Keys
    following: Service
    authorizer: PresentAuthorizer
    freeing: GradualFreeing

    def prepare(self, config: Config) -> Callable[[], None]:
        """Build the authorizer of another configuration, in any thread. Raises ConfigError.

        Returns the function that puts it into effect.
        """
        sources = read_sources(config)
        known = self.rules.known
        if sources.has_database and known is None:
            file = "holdfast.toml" if config.file is None else str(config.file)
            raise ConfigError([ConfigProblem(file, None, "authorization.sources", self.rules.problem)])
        stored = None if known is None else rules_in(known)
        users = self.users
        authorizer = authorizer_of(config, sources, stored, users.groups_of, users.groups_digest, self.freeing.free)

        def use() -> None:
            self.authorizer.use(authorizer)
            self.rules.use(sources, known)

        return use


def compose_accounts(config: Config, *, durable: DurableStore, reactor: Any, now: Callable[[], int]) -> Accounts:
    """Build the parts. They are ready once the database is open. Raises ConfigError for the files with rules."""
    sources = read_sources(config)
    users = Users(durable, now=now, kept=True, required=config.authentication.database_users is not None)
    freeing = GradualFreeing(reactor)
    authorizer = PresentAuthorizer(
        authorizer_of(config, sources, None, users.groups_of, users.groups_digest, freeing.free)
    )
    rules = Rules(
        durable,
        sources=lambda: sources,
        present=authorizer,
        now=now,
        in_thread=lambda work, *args: deferToThreadPool(reactor, reactor.getThreadPool(), work, *args),
    )
    renewal = Renewal(authorizer, reactor)
    users.on_change(renewal.changed)
    keys = Keys(durable, now=now, kept=True)
    following = Following(durable, users, rules, reactor, renewal, keys)
    return Accounts(
        users=users, rules=rules, keys=keys, following=following, authorizer=authorizer, freeing=freeing
    )  # fmt: skip


def hash_parameters_of(config: Config) -> HashParameters:
    """Return the parameters of new hashes in the database."""
    section = config.authentication.database_users
    return HashParameters() if section is None else HashParameters(section.memory // 1024, section.passes)


def compose_account_routes(
    users: Users, rules: Rules, keys: Keys, hash_password: HashPassword, now: Callable[[], int]
) -> tuple[Route, ...]:
    """Return the routes of the calls about users, rules and API keys.

    ``hash_password`` may raise Busy; ``now`` returns milliseconds since the epoch.
    """
    return (*UserAPI(users, hash_password).routes, *RuleAPI(rules).routes, *KeyAPI(keys, now).routes)
