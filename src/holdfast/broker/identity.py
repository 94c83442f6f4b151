"""Builds what decides who connects and what they may do: users, rules, failed logins, methods, and their API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool

from holdfast.admin.api.api_keys import KeyAPI
from holdfast.admin.api.bans import BanAPI, BanFile
from holdfast.admin.api.rules import RuleAPI
from holdfast.admin.api.users import HashPassword, UserAPI
from holdfast.admin.routing import Route
from holdfast.broker.base import Base
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.options import Section
from holdfast.config.sections.authentication import SCRAM_FILE, DatabaseUsersConfig, HashedConfig, ScramConfig
from holdfast.config.sections.authorization import FailedLoginsConfig
from holdfast.identity.addresses import TrustedProxies
from holdfast.identity.api_keys import Keys
from holdfast.identity.authorizer import PresentAuthorizer
from holdfast.identity.bans import Ban, Bans, Exempt, Kind, store_bans
from holdfast.identity.chain import Chain, Chains, EnhancedByListener, Entry
from holdfast.identity.database_rules import Rules, rules_in
from holdfast.identity.external import Surroundings, UnusableOption, external_method
from holdfast.identity.failed_logins import FailureLimits, Failures, IFailures, UncountedFailures
from holdfast.identity.following import Following, Renewal
from holdfast.identity.hashes import HashingThreads, HashParameters
from holdfast.identity.interfaces import (
    AnonymousAuthenticator,
    IAuthenticationMethod,
    IAuthenticator,
    IEnhancedAuthenticator,
    Principal,
)
from holdfast.identity.rule_sources import authorizer_of, read_sources
from holdfast.identity.shared_bans import SharedBans
from holdfast.identity.user_files import gone_or_changed
from holdfast.identity.users import Changes, Users
from holdfast.retained.source_check import SourceCheck
from holdfast.scheduling.long_work import GradualFreeing
from holdfast.sessions.registry import SessionRegistry
from holdfast.storage.store import DurableStore
from holdfast.wire import ReasonCode

if TYPE_CHECKING:
    from holdfast.identity.passwords import PasswordFile
    from holdfast.identity.scram import ScramAuthenticator, UsersFile
    from holdfast.identity.users import DatabaseUsers


# Builds the parts that keep users and rules in the database, the authorizer that asks them, and their API.


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


def compose_accounts(
    config: Config, *, durable: DurableStore, reactor: Any, now: Callable[[], int], bans: SharedBans | None = None
) -> Accounts:
    """Build the parts. They are ready once the database is open. Raises ConfigError for the files with rules.

    A member of a cluster follows its ``bans`` too.
    """
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
    following = Following(durable, users, rules, reactor, renewal, keys, bans)
    return Accounts(
        users=users, rules=rules, keys=keys, following=following, authorizer=authorizer, freeing=freeing
    )  # fmt: skip


def hash_parameters_of(config: Config) -> HashParameters:
    """Return the parameters of new hashes in the database."""
    section = config.authentication.database_users
    return HashParameters() if section is None else HashParameters(section.memory // 1024, section.passes)


def trusted_proxies(config: Config) -> list[TrustedProxies]:
    """Return the trusted proxies of all listeners, that of the API among them."""
    lists = [*(listener.trusted_proxies for listener in config.listeners.values()), config.admin.trusted_proxies]
    return [TrustedProxies(names) for names in lists]


@frozen(kw_only=True)
class IdentityParts:
    """The parts that decide who connects and what they may do. ``exempt`` addresses are never banned.

    A member of a cluster shares its bans with all (``shared_bans``).
    """

    accounts: Accounts
    bans: Bans
    shared_bans: SharedBans | None
    exempt: Exempt
    threads: HashingThreads
    authentication: Authentication


def build(config: Config, base: Base) -> IdentityParts:
    """Build the parts. Raises ConfigError for a file that cannot be used."""
    exempt = Exempt(trusted_proxies(config))
    bans = Bans(now=lambda: base.now() / 1000, exempt=exempt)
    shared = None if base.membership is None else SharedBans(base.durable, bans, config.data_dir)
    accounts = compose_accounts(config, durable=base.durable, reactor=base.reactor, now=base.now, bans=shared)
    threads = HashingThreads(base.reactor)
    authentication = Authentication(
        config, users=accounts.users, threads=threads, reactor=base.reactor, now=base.now,
        environment=base.environment,
    )  # fmt: skip
    accounts.following.setServiceParent(authentication.services)
    return IdentityParts(
        accounts=accounts, bans=bans, shared_bans=shared, exempt=exempt, threads=threads,
        authentication=authentication,
    )  # fmt: skip


def compose_account_routes(
    users: Users, rules: Rules, keys: Keys, hash_password: HashPassword, now: Callable[[], int]
) -> tuple[Route, ...]:
    """Return the routes of the calls about users, rules and API keys.

    ``hash_password`` may raise Busy; ``now`` returns milliseconds since the epoch.
    """
    return (*UserAPI(users, hash_password).routes, *RuleAPI(rules).routes, *KeyAPI(keys, now).routes)


# Builds the parts that count failed logins, and the API about bans.


def ban_api_of(
    config: Config, base: Base, identity: IdentityParts, registry: SessionRegistry, sources: SourceCheck | None
) -> BanAPI:
    """Return the API about bans. A ban of a user withholds the user's retained messages (``sources``)."""
    bans, shared = identity.bans, identity.shared_bans

    def write(kept: Iterable[Ban]) -> Deferred[None]:
        return base.in_thread(store_bans, config.data_dir, kept)

    def apply(ban: Ban) -> None:
        dismissed = registry.dismissals.dismiss(partial(bans.concerns, ban), ReasonCode.BANNED, "this client is banned")
        if ban.kind is Kind.USERNAME and sources is not None:
            sources.follow_rules()
            # The user's last messages come before the last connection ends. So a survey that has begun begins again.
            dismissed.addCallback(lambda _: sources.renew())

    if shared is not None:
        shared.apply = apply
    return BanAPI(bans, now=base.now, store=BanFile(bans, write) if shared is None else shared, apply=apply)


def compose_failures(config: FailedLoginsConfig, bans: Bans, exempt: Exempt, clock: IReactorTime) -> IFailures:
    """Return the part that counts failed logins."""
    if not config.enable:
        return UncountedFailures()
    limits = FailureLimits(
        most=config.max_count,
        window=config.window_time,
        ban=config.ban_time,
    )
    return Failures(limits, seconds=clock.seconds, ban=bans.ban_peer, exempt=exempt)


# Builds the methods that compare passwords with hashes. Their libraries are imported when there is one.


class Passwords:
    """The password files and the users in the database, which share the threads and the credentials that are verified.

    Files that a configuration from ``before`` has too are taken over, with their users, at :meth:`begin`.
    """

    def __init__(
        self,
        config: Config,
        sections: Mapping[str, HashedConfig],
        users: Users,
        threads: HashingThreads,
        reactor: Any,
        before: Passwords | None = None,
    ) -> None:
        """Read the files, in any thread. Raises ConfigError."""
        from holdfast.identity.hashes import HashParameters
        from holdfast.identity.passwords import Logins, PasswordFile, VerifiedCredentials
        from holdfast.identity.users import DatabaseUsers

        self._before = before
        self._threads = threads
        self._verified: VerifiedCredentials = VerifiedCredentials() if before is None else before._verified
        self._parameters = {name: HashParameters(each.memory // 1024, each.passes) for name, each in sections.items()}
        self.files: dict[str, PasswordFile] = {}
        self.databases: dict[str, DatabaseUsers] = {}
        self._takings: list[Callable[[], object]] = []
        problems: list[ConfigProblem] = []
        for name, each in sections.items():
            parameters = self._parameters[name]
            if isinstance(each, DatabaseUsersConfig):
                logins = Logins(name, threads, self._verified, parameters)
                self.databases[name] = DatabaseUsers(users, logins)
                continue
            path = config.absolute(each.path)
            known = None if before is None else before.files.get(name)
            try:
                if known is not None and known.path == path:
                    self._takings.append(known.prepare(parameters, each.rehash))
                    self.files[name] = known
                else:
                    self.files[name] = PasswordFile(
                        name, path, threads=self._threads, verified=self._verified, parameters=parameters,
                        rehash=each.rehash, reactor=reactor,
                    )  # fmt: skip
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems)

    def begin(self, services: MultiService) -> None:
        """Use these files from now on, and those from before no longer."""
        before, self._before = self._before, None
        if before is not None:
            before.end(keeping=self)
        for take in self._takings:
            take()
        self._takings.clear()
        beginning: Iterable[Service] = self.files.values()
        for service in beginning:
            if service.parent is None:
                service.setServiceParent(services)

    def end(self, keeping: Passwords | None = None) -> None:
        """Stop watching all files that are not kept."""
        kept = () if keeping is None else tuple(keeping.files.values())
        ending: Iterable[Service] = self.files.values()
        for service in ending:
            if service not in kept and service.parent is not None:
                service.disownServiceParent()

    @property
    def methods(self) -> Mapping[str, PasswordFile | DatabaseUsers]:
        """The methods by name."""
        return {**self.files, **self.databases}

    def last_entries(self, names: Sequence[str]) -> list[Entry]:
        """Return the end of a chain of these methods: it spends time on unknown users, if one of them has passwords."""
        from holdfast.identity.passwords import UnknownUsers

        methods = self.methods
        sources = [methods[name] for name in names if name in methods]
        if not sources:
            return []
        parameters = self._parameters[next(name for name in names if name in methods)]
        return [Entry("unknown users", UnknownUsers(sources, self._threads, parameters))]


# Builds the authentication of clients: for each listener a chain of methods, and its Authentication Method.


@frozen(kw_only=True)
class AuthenticationParts:
    """The parts that authenticate clients by one configuration."""

    config: Config
    authenticator: IAuthenticator
    enhanced_authenticator: IEnhancedAuthenticator | None = None
    passwords: Passwords | None = None
    #: the files of SCRAM users, by the names of their methods
    scram_files: Mapping[str, UsersFile] = field(factory=dict)


class Authentication:
    """The present authentication, and its services, which run while the broker does (``services``).

    ``now`` returns milliseconds since the epoch. The ``environment`` may have secrets.
    """

    def __init__(
        self,
        config: Config,
        *,
        users: Users,
        threads: HashingThreads,
        reactor: Any,
        now: Callable[[], int],
        environment: Mapping[str, str],
    ) -> None:
        """Read all files. Raises ConfigError if one cannot be used."""
        self._users = users
        self._threads = threads
        self._reactor = reactor
        self._now = now
        self._environment = environment
        self.services = MultiService()
        hashing: Service = threads
        hashing.setServiceParent(self.services)
        users.on_change(self._users_changed)
        self._on_revoked: Callable[[Callable[[Principal], bool]], object] | None = None
        self._revocations: Service | None = None
        self.parts = self.compose(config)
        if self.parts.passwords is not None:
            self.parts.passwords.begin(self.services)

    def on_revoked(self, callback: Callable[[Callable[[Principal], bool]], object]) -> None:
        """Call this whenever a method revokes users, with a function that tells their Principals."""
        self._on_revoked = callback
        self._watch(())

    def _users_changed(self, changes: Changes) -> None:
        """Announce users in the database who must log in again."""
        passwords, revoked = self.parts.passwords, changes.revoked
        if revoked and passwords is not None and passwords.databases and self._on_revoked is not None:
            methods = frozenset(passwords.databases)
            self._on_revoked(lambda principal: principal.method in methods and principal.username in revoked)

    def _watch(self, known: Collection[object]) -> None:
        """Listen to the password files that are not known, and look at the files of SCRAM users."""
        for file in self.parts.passwords.files.values() if self.parts.passwords is not None else ():
            if file not in known and self._on_revoked is not None:
                file.on_revoked(self._on_revoked)
        if self._revocations is not None:
            self._revocations.disownServiceParent()
            self._revocations = None
        if self.parts.scram_files and self._on_revoked is not None:
            from holdfast.identity.scram import Revocations

            service: Service = Revocations(self.parts.scram_files, self._reactor, self._on_revoked)
            service.setServiceParent(self.services)
            self._revocations = service

    def compose(self, config: Config, before: AuthenticationParts | None = None) -> AuthenticationParts:
        """Build the authentication, in any thread. Raises ConfigError if a file cannot be used.

        Parts from ``before`` are used again, and stay unchanged until :meth:`use`. Libraries are imported for the
        methods that are configured: they are large, and most brokers need few of them.
        """
        if not config.authentication.is_configured:
            return AuthenticationParts(config=config, authenticator=AnonymousAuthenticator())
        around = Surroundings(reactor=self._reactor, now=self._now, folder=config.folder, environment=self._environment)
        sections = config.authentication.methods
        methods: dict[str, IAuthenticationMethod] = {}
        scram: dict[str, _Scram] = {}
        problems: list[ConfigProblem] = []
        passwords: Passwords | None = None
        hashed = {name: each for name, each in sections.items() if isinstance(each, HashedConfig)}
        if hashed:
            problems += self._database_problems(config, before)
            known = before.passwords if before else None
            try:
                passwords = Passwords(config, hashed, self._users, self._threads, self._reactor, known)
            except ConfigError as error:
                problems += error.problems
        if config.authentication.scram_file:
            self._try(problems, scram, SCRAM_FILE, lambda: _scram(config, SCRAM_FILE, config.authentication.scram_file))
        for name, section in sections.items():
            if isinstance(section, ScramConfig):
                self._try(problems, scram, name, partial(_scram, config, name, section.path))
            elif name not in hashed:
                self._try(problems, methods, name, partial(_external, config, name, section, around))
        if problems:
            raise ConfigError(problems)
        if passwords is not None:
            methods.update(passwords.methods)
        return self._chained(config, methods, scram, passwords)

    def _database_problems(self, config: Config, before: AuthenticationParts | None) -> Iterator[ConfigProblem]:
        """Yield the problem of users in the database who could not be read. A start finds it when the store opens."""
        problem = self._users.problem
        for name, section in config.authentication.methods.items():
            if before is not None and problem is not None and isinstance(section, DatabaseUsersConfig):
                yield config.method_problem(name, "type", problem)

    def _chained(
        self,
        config: Config,
        methods: Mapping[str, IAuthenticationMethod],
        scram: Mapping[str, _Scram],
        passwords: Passwords | None,
    ) -> AuthenticationParts:
        """Return the chain of each listener."""
        chains: dict[str, Chain] = {}
        enhanced: dict[str, IEnhancedAuthenticator] = {}
        for listener_name, listener in config.listeners.items():
            names = config.authentication.names_of(listener)
            entries = [Entry(name, methods[name]) for name in names if name in methods]
            if passwords is not None:
                entries += passwords.last_entries(names)
            chains[listener_name] = Chain(entries, guests=listener.allow_anonymous, clock=self._reactor)
            for name in names:
                if name in scram:
                    enhanced[listener_name] = scram[name].authenticator
        return AuthenticationParts(
            config=config,
            authenticator=Chains(chains),
            enhanced_authenticator=EnhancedByListener(enhanced) if enhanced else None,
            passwords=passwords,
            scram_files={name: each.file for name, each in scram.items()},
        )

    def use(self, parts: AuthenticationParts) -> EndedIdentities:
        """Use these parts from now on. Return a function that tells whether this has ended a Principal's identity."""
        before, self.parts = self.parts, parts
        ended = EndedIdentities(before, parts)
        self._watch(() if before.passwords is None else tuple(before.passwords.files.values()))
        if parts.passwords is not None:
            parts.passwords.begin(self.services)
        elif before.passwords is not None:
            before.passwords.end()
        return ended

    @staticmethod
    def _try(problems: list[ConfigProblem], into: dict[str, Any], name: str, make: Callable[[], object]) -> None:
        """Make a method, or note its problems."""
        try:
            into[name] = make()
        except ConfigError as error:
            problems += error.problems


class EndedIdentities:
    """Tells which Principals another configuration does not admit any more.

    Those are: guests of listeners that admit none now; users whose method is gone from their listener, or is of another
    type; users who are gone from a file, or have another password there. Services, tokens and certificates are asked
    when a client connects: their users stay.
    """

    def __init__(self, before: AuthenticationParts, after: AuthenticationParts) -> None:
        # It keeps names only, and no parts: it is asked as long as a client is being admitted by those before.
        self._config = after.config
        self._types = {name: type(each) for name, each in before.config.authentication.methods.items()}
        self._changed = {
            # Not only those in the file when it was composed: users have logged in and changed since.
            name: before.scram_files[name].take_gone() | gone_or_changed(before.scram_files[name].known, file.known)
            for name, file in after.scram_files.items()
            if name in before.scram_files
        }
        if before.passwords is not None and after.passwords is not None:
            for name, file in after.passwords.files.items():
                old = before.passwords.files.get(name)
                # A file that stays tells its changes itself: it knows which hashes are only better ones.
                if old is not None and old is not file:
                    self._changed[name] = gone_or_changed(old.users, file.users)

    def __call__(self, principal: Principal) -> bool:
        """Tell whether the identity of a Principal has ended."""
        listener = self._config.listeners.get(principal.listener)
        if listener is None:
            return False  # its clients are told that the listener is gone
        authentication, method = self._config.authentication, principal.method
        if not method:
            proven_no_more = authentication.is_configured and principal.username is not None
            return proven_no_more or (authentication.is_configured and not listener.allow_anonymous)
        if method not in authentication.names_of(listener):
            return True
        if self._types.get(method, type(None)) is not type(authentication.methods.get(method)):
            return True
        return principal.username in self._changed.get(method, ())


def _external(config: Config, name: str, section: Section, around: Surroundings) -> IAuthenticationMethod:
    """Return a method that relies on others for the proof of identity."""
    try:
        return external_method(section, around)
    except UnusableOption as unusable:
        raise ConfigError([config.method_problem(name, unusable.key, str(unusable))]) from None


@frozen
class _Scram:
    """An authenticator for SCRAM-SHA-256, and the file of its users."""

    authenticator: ScramAuthenticator
    file: UsersFile


def _scram(config: Config, name: str, path: str) -> _Scram:
    """Return the authenticator for SCRAM-SHA-256."""
    from holdfast.identity.scram import ScramAuthenticator, UsersFile, persistent_secret

    file = UsersFile(config.absolute(path))
    return _Scram(ScramAuthenticator(file.users, persistent_secret(config.data_dir / "holdfast.secret"), name), file)
