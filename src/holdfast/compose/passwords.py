"""Builds the password files of the configuration. Their libraries are imported when there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.application.service import MultiService

from holdfast.auth.chain import Entry
from holdfast.config import Config
from holdfast.config.sections.methods.passwords import PasswordFileConfig


class Passwords:
    """The password files, which share their threads and the credentials that are verified."""

    def __init__(
        self, config: Config, sections: Mapping[str, PasswordFileConfig], services: MultiService, reactor: Any
    ) -> None:
        from holdfast.auth.passwords.hashes import HashParameters
        from holdfast.auth.passwords.hashing_threads import HashingThreads
        from holdfast.auth.passwords.method import PasswordFile
        from holdfast.auth.passwords.verified import VerifiedCredentials

        self._threads = HashingThreads(reactor)
        verified = VerifiedCredentials()
        self._parameters = {name: HashParameters(each.memory // 1024, each.passes) for name, each in sections.items()}
        self.files = {
            name: PasswordFile(
                name, config.absolute(each.path), threads=self._threads, verified=verified,
                parameters=self._parameters[name], rehash=each.rehash, reactor=reactor,
            )
            for name, each in sections.items()
        }  # fmt: skip
        for service in (*self.files.values(), self._threads):
            service.setServiceParent(services)

    def last_entries(self, names: Sequence[str]) -> list[Entry]:
        """Return the end of a chain of these methods: it spends time on unknown users, if a password file does."""
        from holdfast.auth.passwords.unknown_users import UnknownUsers

        sources = [self.files[name] for name in names if name in self.files]
        if not sources:
            return []
        parameters = self._parameters[next(name for name in names if name in self.files)]
        return [Entry("unknown users", UnknownUsers(sources, self._threads, parameters))]
