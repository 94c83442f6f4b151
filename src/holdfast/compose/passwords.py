"""Builds the methods that compare passwords with hashes. Their libraries are imported when there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.application.service import MultiService, Service

from holdfast.accounts.users import Users
from holdfast.auth.chain import Entry
from holdfast.auth.passwords.hashing_threads import HashingThreads
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.sections.methods.passwords import DatabaseUsersConfig, HashedConfig

if TYPE_CHECKING:
    from holdfast.accounts.method import DatabaseUsers
    from holdfast.auth.passwords.method import PasswordFile


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
        from holdfast.accounts.method import DatabaseUsers
        from holdfast.auth.passwords.hashes import HashParameters
        from holdfast.auth.passwords.logins import Logins
        from holdfast.auth.passwords.method import PasswordFile
        from holdfast.auth.passwords.verified import VerifiedCredentials

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
                self.databases[name] = DatabaseUsers(users, logins, rehash=each.rehash)
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
        from holdfast.auth.passwords.unknown_users import UnknownUsers

        methods = self.methods
        sources = [methods[name] for name in names if name in methods]
        if not sources:
            return []
        parameters = self._parameters[next(name for name in names if name in methods)]
        return [Entry("unknown users", UnknownUsers(sources, self._threads, parameters))]
