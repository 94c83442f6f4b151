"""Where the keys for tokens come from: the configuration, or a file that may change while the broker runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.auth.tokens.keys import Key, UnusableKey
from holdfast.auth.user_file import contents, file_state
from holdfast.config.problems import ConfigError
from holdfast.config.toml.file import without_mark

#: bytes of a file or an answer with keys
LONGEST_DOCUMENT = 256 * 1024


@frozen
class NoKeys:
    """There are no keys now, so no token can be judged; ``explanation`` is a clause for the log."""

    explanation: str


class KeyRing:
    """The known keys: one without a Key ID, or a set."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._only = keys[0] if len(keys) == 1 else None
        self._by_kid = {key.kid: key for key in keys if key.kid is not None}

    def knows(self, kid: str | None) -> bool:
        """Tell whether there is a key for this Key ID. A single key without one is the key for all."""
        return self._find(kid) is not None

    def key(self, kid: str | None, algorithm: object) -> Key | None:
        """Return the key for a token with this Key ID and algorithm, None if there is none. It never tries several."""
        key = self._find(kid)
        return key if key is not None and algorithm in key.algorithms else None

    def _find(self, kid: str | None) -> Key | None:
        if kid is None:
            return self._only
        found = self._by_kid.get(kid)
        if found is None and self._only is not None and self._only.kid is None:
            return self._only
        return found


class IKeys(Protocol):
    """A source of keys."""

    def ring(self, kid: str | None) -> KeyRing | NoKeys | Deferred[KeyRing | NoKeys]:
        """Return the keys to judge a token with this Key ID, at once or later."""


class FixedKeys:
    """Keys that never change."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._ring = KeyRing(keys)

    def ring(self, kid: str | None) -> KeyRing:
        """Return the keys."""
        return self._ring


class FileKeys:
    """Keys in a file. After a change it is read again; while it cannot be used, the keys before the change count."""

    _log = Logger()

    def __init__(self, path: Path, parse: Callable[[bytes], Sequence[Key]]) -> None:
        """Read the file. Raises UnusableKey."""
        self._path = path
        self._parse = parse
        self._seen = file_state(path)
        self._ring = self._read()

    def ring(self, kid: str | None) -> KeyRing:
        """Return the present keys of the file."""
        state = file_state(self._path)
        if state != self._seen:
            self._seen = state  # noted first, so that a file with a problem is read and logged once
            try:
                self._ring = self._read()
                self._log.info("{path}: the keys are read again", path=self._path)
            except UnusableKey as unusable:
                self._log.error(
                    "{path}: {problem}; the keys before the change count", path=self._path, problem=unusable
                )
        return self._ring

    def _read(self) -> KeyRing:
        try:
            content, _ = contents(self._path, "", "it has the keys for tokens")
        except ConfigError as error:
            raise UnusableKey(error.problems[0].message) from None
        if len(content) > LONGEST_DOCUMENT:
            raise UnusableKey(f"the file has more than {LONGEST_DOCUMENT} bytes")
        return KeyRing(self._parse(without_mark(content)))
