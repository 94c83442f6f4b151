"""The file of SCRAM users: a line for each, with what proves a password but not the password itself.

``NAME:SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY``: after the name, what Postgres keeps in ``pg_authid``.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen
from scramp import ScramException, ScramMechanism
from scramp.utils import saslprep
from twisted.logger import Logger

from holdfast.config.problems import ConfigError, ConfigProblem
from holdfast.config.toml_file import display_name

METHOD = "SCRAM-SHA-256"

#: the least and the most the mechanism allows
ITERATIONS = range(4096, 10_000_000 + 1)
_SALT_BYTES = range(12, 64 + 1)
_NEW_SALT_BYTES = 16
_KEY_BYTES = 32
_LONGEST_NAME = 255

_ALLOWED = f"NAME:{METHOD}$ITERATIONS:SALT$STOREDKEY:SERVERKEY as written by: holdfast scram set"
_VERIFIER = re.compile(
    rf"{METHOD}\$([0-9]{{1,9}}):([A-Za-z0-9+/]+={{0,2}})\$([A-Za-z0-9+/]+={{0,2}}):([A-Za-z0-9+/]+={{0,2}})"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_log = Logger()


class Unusable(ValueError):
    """A user name, a password or a verifier that cannot be used. The text says why, and what is allowed."""


@frozen(repr=False)
class Verifier:
    """What the Server knows of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"{METHOD}${self.iterations}:{salt}${stored}:{server}"


def prepared(username: str) -> str:
    """Return a user name as SCRAM compares it [RFC 4013]. Raises Unusable."""
    if _CONTROL.search(username):
        raise Unusable("a user name has no control characters")
    if ":" in username:
        raise Unusable("a user name has no colon, which ends it in the file")
    name = _saslprep(username, "user name")
    if not name or name != name.strip() or name.startswith("#") or ":" in name:
        raise Unusable("a user name has at least one character, no space at its ends, no colon, and no # at its start")
    if len(name.encode()) > _LONGEST_NAME:
        raise Unusable(f"a user name has at most {_LONGEST_NAME} bytes of UTF-8")
    return name


def new_verifier(password: str, iterations: int) -> Verifier:
    """Return a verifier of a password, with a new salt. Raises Unusable."""
    if not _saslprep(password, "password"):
        raise Unusable("a password has at least one character")
    salt, stored_key, server_key, count = ScramMechanism(METHOD).make_auth_info(
        password, iteration_count=iterations, salt=secrets.token_bytes(_NEW_SALT_BYTES)
    )
    return Verifier(count, salt, stored_key, server_key)


def read_users(path: Path) -> Mapping[str, Verifier]:
    """Return the users in a file, for the broker. Raises ConfigError with all that is wrong."""
    name = display_name(path)
    content, mode = _read(path, name)
    if mode & stat.S_IWOTH:
        raise _problem(name, None, f"every user of this machine may write to it; allowed: chmod 600 {name}")
    if mode & (stat.S_IROTH | stat.S_IWGRP):
        _log.warn("{name}: others may read it, or its group write to it; better: chmod 600 {name}", name=name)
    return {user: verifier for user, verifier, _ in _users(content, name)}


def set_user(path: Path, username: str, verifier: Verifier) -> bool:
    """Write a user to a file, which is made where there is none; False if the user is new.

    Raises ConfigError where the file cannot be used, and leaves it as it is.
    """
    return _rewrite(path, username, f"{username}:{verifier}", make=True)


def remove_user(path: Path, username: str) -> bool:
    """Remove a user from a file; False if there is none of this name. Raises ConfigError."""
    return _rewrite(path, username, None, make=False)


def _saslprep(text: str, what: str) -> str:
    try:
        prepared = saslprep(text)
    except ScramException as error:
        raise Unusable(f"this {what} has characters that SASLprep (RFC 4013) does not allow: {error.args[0]}") from None
    assert isinstance(prepared, str)
    return prepared


def _problem(name: str, line: int | None, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(name, line, "", message)])


def _read(path: Path, name: str) -> tuple[bytes, int]:
    """Return the bytes of a file and its mode."""
    try:
        with open(path, "rb", opener=_opened) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise _problem(name, None, "this is not a regular file")
            return file.read(), mode
    except FileNotFoundError:
        raise _problem(name, None, "there is no such file; make it with: holdfast scram set FILE USERNAME") from None
    except OSError as error:
        raise _problem(name, None, f"cannot be read: {error.strerror}") from None


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe without a writer is told, not waited for


def _users(content: bytes, name: str) -> Iterator[tuple[str, Verifier, int]]:
    """Yield each user with the number of its line. Raises ConfigError with all bad lines in the end."""
    problems = []
    lines: dict[str, int] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            entry = _entry(line)
            if entry is None:
                continue
            earlier = lines.setdefault(entry[0], number)
            if earlier != number:
                raise Unusable(f"the user of line {earlier} again; allowed: one line for each user")
            yield *entry, number
        except Unusable as unusable:
            problems.append(ConfigProblem(name, number, "", str(unusable)))
    if problems:
        raise ConfigError(problems)


def _entry(line: bytes) -> tuple[str, Verifier] | None:
    """Return what a line says, None for nothing; what is wrong with it is told without showing it."""
    try:
        text = line.decode().strip(" \t\r")
    except UnicodeDecodeError:
        raise Unusable("this is not UTF-8; save the file in that encoding") from None
    if not text or text.startswith("#"):
        return None
    username, colon, rest = text.partition(":")
    if not colon:
        raise Unusable(f"found no colon after a name; allowed: {_ALLOWED}")
    return prepared(username), _verifier(rest)


def _verifier(text: str) -> Verifier:
    match = _VERIFIER.fullmatch(text)
    if match is None:
        raise Unusable(f"found something else than a {METHOD} verifier after the name; allowed: {_ALLOWED}")
    iterations = int(match[1])
    if iterations not in ITERATIONS:
        raise Unusable(f"found {iterations} iterations; allowed: {ITERATIONS.start} to {ITERATIONS.stop - 1}")
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in match.groups()[1:])
    except ValueError:
        raise Unusable(f"found what is not base64; allowed: {_ALLOWED}") from None
    if len(salt) not in _SALT_BYTES:
        raise Unusable(
            f"found a salt of {len(salt)} bytes; allowed: {_SALT_BYTES.start} to {_SALT_BYTES.stop - 1}, in base64"
        )
    if {len(stored_key), len(server_key)} != {_KEY_BYTES}:
        raise Unusable(f"found a key of another length; allowed: keys of {_KEY_BYTES} bytes, in base64")
    return Verifier(iterations, salt, stored_key, server_key)


def _rewrite(path: Path, username: str, entry: str | None, make: bool) -> bool:
    """Put an entry in place of a user's, or at the end; None removes it. True if the user was there."""
    name = display_name(path)
    path = Path(os.path.realpath(path))
    if make and not path.exists():
        content = b""
    else:
        content, _ = _read(path, name)
    places = {user: number - 1 for user, _, number in _users(content, name)}
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    place = places.get(username)
    if place is None and entry is None:
        return False
    if place is not None:
        del lines[place]
    if entry is not None:
        lines.insert(len(lines) if place is None else place, entry.encode())
    try:
        _replace(path, b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise _problem(name, None, f"cannot be written: {error.strerror}; nothing was changed") from None
    return place is not None


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole: readers see the old one or the new one, and only its owner may write to it."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            _keep_readers(path, file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_readers(path: Path, descriptor: int) -> None:
    """Leave the owner and, where its group may read it, that group: the broker may run as one of them."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | (old.st_mode & stat.S_IRGRP))
