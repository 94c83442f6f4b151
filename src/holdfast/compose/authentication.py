"""Builds the authentication of clients: for each listener a chain of methods, and its Authentication Method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from twisted.application.service import MultiService, Service

from holdfast.accounts.users import Changes, Users
from holdfast.auth.anonymous import AnonymousAuthenticator
from holdfast.auth.chain import Chain, Chains, EnhancedByListener, Entry
from holdfast.auth.external import Surroundings, UnusableOption, external_method
from holdfast.auth.interfaces import IAuthenticationMethod, IAuthenticator, IEnhancedAuthenticator, Principal
from holdfast.auth.passwords.hashing_threads import HashingThreads
from holdfast.auth.user_file import gone_or_changed
from holdfast.compose.passwords import Passwords
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.fields import Section
from holdfast.config.sections.authentication import SCRAM_FILE
from holdfast.config.sections.authentication_methods import ScramConfig
from holdfast.config.sections.methods.passwords import DatabaseUsersConfig, HashedConfig

if TYPE_CHECKING:
    from holdfast.auth.scram.mechanism import ScramAuthenticator
    from holdfast.auth.scram.users_file import UsersFile


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
            from holdfast.auth.scram.revocations import Revocations

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
    from holdfast.auth.scram.mechanism import ScramAuthenticator
    from holdfast.auth.scram.secret_file import persistent_secret
    from holdfast.auth.scram.users_file import UsersFile

    file = UsersFile(config.absolute(path))
    return _Scram(ScramAuthenticator(file.users, persistent_secret(config.data_dir / "holdfast.secret"), name), file)
