"""Hashing without threads, so that a test sees how many hashes there are, and when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from holdfast.identity.chain import Chain, Chains, Entry
from holdfast.identity.hashes import Busy, HashParameters, new_hash
from holdfast.identity.passwords import PasswordFile, UnknownUsers, VerifiedCredentials

T = TypeVar("T")

#: cheap hashes for tests
CHEAP = HashParameters(8, 1)


class Hashing:
    """Hashes at once, or when the test lets it. Counts the hashes."""

    def __init__(self) -> None:
        self.slow = False
        self.busy = False
        self.count = 0
        self.waiting: list[Callable[[], None]] = []

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        if self.busy:
            raise Busy("busy")
        answer: Deferred[T] = Deferred()

        def hash_now() -> None:
            self.count += 1
            maybeDeferred(work).chainDeferred(answer)

        if self.slow:
            self.waiting.append(hash_now)
        else:
            hash_now()
        return answer

    def catch_up(self) -> None:
        """Compute the hashes that wait."""
        while self.waiting:
            self.waiting.pop(0)()


class Passwords:
    """A password file and the chain of a listener with it."""

    def __init__(self, path: Path, clock: Clock, rehash: bool = True, **users: str) -> None:
        self.path = path
        self.hashing = Hashing()
        self.clock = clock
        if users:
            self.write(**{user: new_hash(password.encode(), CHEAP) for user, password in users.items()})
        threads: Any = self.hashing
        self.file = PasswordFile(
            "passwords", path, threads=threads, verified=VerifiedCredentials(), parameters=CHEAP, rehash=rehash,
            reactor=clock, in_thread=maybeDeferred,
        )  # fmt: skip
        self.unknown = UnknownUsers([self.file], threads, CHEAP)

    def write(self, **hashes: str) -> None:
        """Replace the file."""
        new = self.path.with_name("new")
        new.write_text("".join(f"{user}:{stored}\n" for user, stored in hashes.items()))
        new.chmod(0o600)
        new.rename(self.path)

    def chains(self, listener: str = "test", guests: bool = False) -> Chains:
        """Return the chain of a listener with this file."""
        entries = [Entry("passwords", self.file), Entry("unknown users", self.unknown)]
        return Chains({listener: Chain(entries, guests=guests, clock=self.clock)})
