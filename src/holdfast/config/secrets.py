"""The places of secrets. The configuration names the place of a secret, so that the file itself has none.

A secret is a file, an environment variable, or a credential of systemd (``LoadCredential=`` of the unit). It is read
when the broker is built. Neither its value nor a value given in the wrong form is ever shown.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import InvalidValue, Text
from holdfast.config.toml import read_regular, without_mark
from holdfast.core.terminal import hidden_character

#: a secret of more bytes is refused
LONGEST = 65536

_FORM = re.compile(r"(file|env|credential):(.+)")
#: names of credentials are those of files in systemd's folder
_CREDENTIAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_FOLDER_VARIABLE = "CREDENTIALS_DIRECTORY"


class UnusableSecret(ValueError):
    """The secret cannot be read from its place. The text says why, and what to do."""


@frozen
class Secret:
    """The place of a secret: ``file`` with a path, ``env`` with a variable, or ``credential`` with a name."""

    place: str
    name: str

    def __str__(self) -> str:
        """Return the place as in the configuration."""
        return f"{self.place}:{self.name}"

    def read(self, folder: Path, environment: Mapping[str, str]) -> bytes:
        """Return the secret without the line break at its end. A relative path begins at ``folder``.

        Raises UnusableSecret.
        """
        if self.place == "env":
            value = os.fsencode(self._variable(self.name, environment))
        elif self.place == "credential":
            value = _content(Path(self._variable(_FOLDER_VARIABLE, environment)) / self.name, self, private=False)
        else:
            value = _content(folder / self.name, self, private=True)
        value = without_mark(value).removesuffix(b"\n").removesuffix(b"\r")
        if not value:
            raise UnusableSecret(f"{self} is empty")
        found = _hidden(value)
        if found is not None:
            raise UnusableSecret(f"{self} has the invisible character {found}; type it anew, or make a new secret")
        return value

    def _variable(self, name: str, environment: Mapping[str, str]) -> str:
        try:
            return environment[name]
        except KeyError:
            advice = "; it is set for a unit of systemd with LoadCredential=" if name == _FOLDER_VARIABLE else ""
            raise UnusableSecret(f"{self}: the environment variable {name} is not set{advice}") from None


def _hidden(value: bytes) -> str | None:
    try:
        return hidden_character(value.decode())
    except UnicodeDecodeError:  # random bytes
        return None


@frozen
class SecretSource:
    """The kind of options with the place of a secret, or an empty string."""

    words: ClassVar[Mapping[str, None]] = {"": None}
    allowed: str = field(
        default='"file:PATH", "env:VARIABLE", "credential:NAME" (LoadCredential= of the systemd unit), or an empty'
        " string for none",
        init=False,
    )

    def read(self, value: object) -> Secret | None:
        """Return the place, None for an empty string; raises InvalidValue, whose text never shows the value."""
        try:
            text = Text(allowed=self.allowed).read(value)
        except InvalidValue:
            raise InvalidValue(f"found something else than a string; allowed: {self.allowed}") from None
        if not text:
            return None
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidValue(f"found no place of a secret, perhaps the secret itself; allowed: {self.allowed}")
        secret = Secret(match[1], match[2])
        if secret.place == "credential" and _CREDENTIAL.fullmatch(secret.name) is None:
            raise InvalidValue(
                f"found a name that no credential has; allowed: {self.allowed}, with letters, digits and . _ - in NAME"
            )
        if secret.place == "file" and secret.name.startswith("~"):
            raise InvalidValue(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return secret


def _content(path: Path, secret: Secret, private: bool) -> bytes:
    """Return the bytes of a file. ``private``: nobody else of this machine may have access to it."""
    try:
        content, mode = read_regular(path, LONGEST)
    except OSError as error:
        raise UnusableSecret(f"{secret}: the file cannot be read: {error.strerror}") from None
    if private and mode & stat.S_IRWXO:
        raise UnusableSecret(f"{secret}: every user of this machine may read or write this file; run: chmod o= {path}")
    if len(content) > LONGEST:
        raise UnusableSecret(f"{secret}: the file has more than {LONGEST} bytes")
    return content
