"""``type = "file"`` and ``type = "database"``: users with passwords, in a file or in the broker's database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import FilePath, Flag, Integer, Size


def _memory() -> Any:
    return option(
        Size("64KB", "1GB"),
        "19MB",
        help="Memory for one argon2id hash. Two passwords are hashed at a time.",
        effect="Higher: a thief of the hashes needs more memory for each guess, and a first login takes longer.",
        example="46MB",
    )


def _passes() -> Any:
    return option(
        Integer(1, 100),
        2,
        help="Passes of argon2id over its memory. Hashes of another number are verified too.",
        effect="Higher: each guess takes longer, and so does a first login.",
        example=3,
    )


@frozen
class PasswordFileConfig(Section):
    """A file of users with their hashed passwords. It can be one of mosquitto."""

    path: str = option(
        FilePath(),
        "",
        help="File with a line NAME:HASH for each user. Written by: holdfast passwd add FILE USER, or mosquitto_passwd."
        " A relative path begins at the folder of this file.",
        effect="Clients can log in with the User Names and Passwords of this file.",
        example="passwords",
    )
    rehash: bool = option(
        Flag(),
        True,
        help="Replace a hash that is less work than memory and passes ask for, such as one of mosquitto or bcrypt, when"
        " its user logs in. The broker needs the right to write to the file and its folder.",
        effect="false: hashes stay as they are. A thief of the file guesses passwords of weak hashes sooner.",
        example=False,
    )
    memory: int = _memory()
    passes: int = _passes()

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, tuple[str, ...]]]:
        """Return a problem if there is no path."""
        if not self.path:
            yield "path", "is missing; set the path of the file with the users", ("path",)


@frozen
class DatabaseUsersConfig(Section):
    """Users in the broker's own database, which the commands ``holdfast user`` add, change and remove."""

    rehash: bool = option(
        Flag(),
        True,
        help="When a user logs in whose hash is less work than memory and passes ask for: replace it in the database.",
        effect="false: hashes stay as they are. A thief of the database guesses passwords of weak hashes sooner.",
        example=False,
    )
    memory: int = _memory()
    passes: int = _passes()


#: the sections of methods that compare passwords with hashes
HashedConfig = PasswordFileConfig | DatabaseUsersConfig
