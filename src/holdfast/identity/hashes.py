"""Hashes of passwords: argon2id for new ones, and those of older brokers, to verify them.

    $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH    Holdfast, mosquitto 2.1: memory [KiB], passes, lanes
    $7$ITERATIONS$SALT$HASH                     mosquitto: PBKDF2 with SHA-512
    $6$SALT$HASH                                mosquitto 1.x: one SHA-512 of password and salt
    $2b$COST$SALTANDHASH                        bcrypt, of which the first 72 bytes of a password count
    $pbkdf2-sha256$ITERATIONS$SALT$HASH         EMQX: PBKDF2 with SHA-1, or SHA-224 to SHA-512
    $emqx-sha256-prefix$SALT$HASH               EMQX: one MD5, SHA-1, SHA-256 or SHA-512 of salt and password

What a file may ask of the broker is bounded. Libraries are imported when a hash needs them.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
import re
import secrets
import stat
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast.config.toml import display_name
from holdfast.identity.chain import is_no_username
from holdfast.identity.user_files import (
    InvalidUser,
    UserFormat,
    contents,
    entries,
    problem,
    remove_line,
    replace_lines,
    set_line,
)

#: KiB of memory, passes over it, and lanes that an argon2id hash may ask for
MEMORY = range(8, 1048576 + 1)
PASSES = range(1, 100 + 1)
_LANES = range(1, 16 + 1)
_MEMORY_OF_LANE = 8  #: KiB, by the definition of argon2
_VERSION = 19

_PBKDF2_ITERATIONS = range(1, 10_000_000 + 1)
_BCRYPT_COSTS = range(4, 17 + 1)
_BCRYPT_LONGEST = 72

#: bytes of the shortest derived key: fewer are guessed by chance
_SHORTEST_KEY = 16
_SALT_BYTES = 16
_HASH_BYTES = 32

_ALLOWED = "NAME:HASH as written by holdfast passwd add or mosquitto_passwd"


@frozen
class HashParameters:
    """The work for each login, and for each guess at a password: memory in KiB, and passes over it.

    The default is a recommendation of OWASP: https://cheatsheetseries.owasp.org (Password Storage).
    """

    memory: int = 19456
    passes: int = 2


@frozen
class _Form:
    """A form of hashes: its pattern, a check of the parts that the pattern finds, and the verification."""

    name: str
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], None]
    verify: Callable[[re.Match[str], bytes], bool]


def checked(text: str) -> str:
    """Return the text of a hash that can be verified. Raises InvalidUser, whose text never shows a secret."""
    form, match = _form_of(text)
    form.check(match)
    return text


def verify(text: str, password: bytes) -> bool:
    """Tell whether this is the password. Takes long, without Python's lock: call it in a thread."""
    form, match = _form_of(text)
    return form.verify(match, password)


def new_hash(password: bytes, parameters: HashParameters) -> str:
    """Return the argon2id hash of a password, with a new salt. Takes long, as :func:`verify`."""
    from argon2.low_level import Type, hash_secret

    salt = secrets.token_bytes(_SALT_BYTES)
    made: bytes = hash_secret(password, salt, parameters.passes, parameters.memory, 1, _HASH_BYTES, Type.ID)
    return made.decode("ascii")


def nobodys_hash(parameters: HashParameters) -> str:
    """Return a hash that no password has, which takes as long to verify as others with these parameters."""
    salt, digest = (_unpadded(secrets.token_bytes(size)) for size in (_SALT_BYTES, _HASH_BYTES))
    return f"$argon2id$v={_VERSION}$m={parameters.memory},t={parameters.passes},p=1${salt}${digest}"


def is_weaker(text: str, parameters: HashParameters) -> bool:
    """Tell whether a guess at the password of this hash is less work than with these parameters."""
    match = _ARGON2ID.pattern.fullmatch(text)
    if match is None:
        return True
    return int(match["m"]) * int(match["t"]) < parameters.memory * parameters.passes


def kind(text: str) -> str:
    """Return the name of a hash's form, and its work, without its secrets. Raises InvalidUser."""
    form, match = _form_of(text)
    work = "".join(f", {name} {value}" for name, value in match.groupdict().items() if name not in ("salt", "hash"))
    return form.name + work


def _form_of(text: str) -> tuple[_Form, re.Match[str]]:
    for form in _FORMS:
        match = form.pattern.fullmatch(text)
        if match is not None:
            return form, match
    raise InvalidUser(f"found no hash of a password after the name that the broker can verify; allowed: {_ALLOWED}")


def _within(name: str, found: int, allowed: range) -> None:
    if found not in allowed:
        raise InvalidUser(f"the hash asks for {name} {found}; allowed: {allowed.start} to {allowed.stop - 1}")


def _decoded(match: re.Match[str], name: str) -> bytes:
    try:
        found = b64decode(match[name], validate=True)
    except (ValueError, binascii.Error):
        raise InvalidUser(f"the hash has invalid base64; allowed: {_ALLOWED}") from None
    return found


def _unpadded(data: bytes) -> str:
    return b64encode(data).decode("ascii").rstrip("=")


# --- argon2id


def _check_argon2id(match: re.Match[str]) -> None:
    _within("a memory (m, KiB) of", int(match["m"]), MEMORY)
    _within("a number of passes (t) of", int(match["t"]), PASSES)
    _within("a number of lanes (p) of", int(match["p"]), _LANES)
    if int(match["m"]) < _MEMORY_OF_LANE * int(match["p"]):
        raise InvalidUser(f"the hash asks for less memory (m) than {_MEMORY_OF_LANE} KiB for each lane (p)")
    for name, least in (("salt", 8), ("hash", 16)):
        part = match[name]
        try:
            decoded = b64decode(part + "=" * (-len(part) % 4), validate=True)
        except (ValueError, binascii.Error):
            decoded = b""
        if _unpadded(decoded) != part:  # the library refuses bits that are left over
            raise InvalidUser(f"the hash has invalid base64; allowed: {_ALLOWED}")
        size = len(decoded)
        if not least <= size <= 128:
            raise InvalidUser(f"the {name} has {size} bytes; allowed: {least} to 128")


def _verify_argon2id(match: re.Match[str], password: bytes) -> bool:
    from argon2.exceptions import VerifyMismatchError
    from argon2.low_level import Type, verify_secret

    try:
        return bool(verify_secret(match[0].encode("ascii"), password, Type.ID))
    except VerifyMismatchError:
        return False


_ARGON2ID = _Form(
    "argon2id",
    re.compile(
        rf"\$argon2id\$v={_VERSION}\$m=(?P<m>[0-9]{{1,8}}),t=(?P<t>[0-9]{{1,8}}),p=(?P<p>[0-9]{{1,8}})"
        r"\$(?P<salt>[A-Za-z0-9+/]{1,200})\$(?P<hash>[A-Za-z0-9+/]{1,200})"
    ),
    _check_argon2id,
    _verify_argon2id,
)


# --- mosquitto


def _check_pbkdf2(match: re.Match[str]) -> None:
    _within("a number of iterations of", int(match["iterations"]), _PBKDF2_ITERATIONS)
    _check_sha512(match)


def _verify_pbkdf2(match: re.Match[str], password: bytes) -> bool:
    expected = _decoded(match, "hash")
    found = hashlib.pbkdf2_hmac(
        "sha512", password, _decoded(match, "salt"), int(match["iterations"]), dklen=len(expected)
    )
    return hmac.compare_digest(found, expected)


def _check_sha512(match: re.Match[str]) -> None:
    if not _decoded(match, "salt") or len(_decoded(match, "hash")) != 64:
        raise InvalidUser("the hash has another length; allowed: a salt, and 64 bytes, in base64")


def _verify_sha512(match: re.Match[str], password: bytes) -> bool:
    found = hashlib.sha512(password + _decoded(match, "salt")).digest()
    return hmac.compare_digest(found, _decoded(match, "hash"))


_BASE64 = r"[A-Za-z0-9+/]{1,200}={0,2}"


# --- EMQX


def _verify_emqx_pbkdf2(match: re.Match[str], password: bytes) -> bool:
    expected, salt = _decoded(match, "hash"), _decoded(match, "salt")
    found = hashlib.pbkdf2_hmac(match["digest"], password, salt, int(match["iterations"]), dklen=len(expected))
    return hmac.compare_digest(found, expected)


def _check_emqx_pbkdf2(match: re.Match[str]) -> None:
    _within("a number of iterations of", int(match["iterations"]), _PBKDF2_ITERATIONS)
    if not _decoded(match, "salt") or len(_decoded(match, "hash")) < _SHORTEST_KEY:
        raise InvalidUser(f"the hash has another length; allowed: a salt, and {_SHORTEST_KEY} bytes or more, in base64")


def _check_emqx(match: re.Match[str]) -> None:
    if len(_decoded(match, "hash")) != hashlib.new(match["digest"], usedforsecurity=False).digest_size:
        raise InvalidUser(f"the hash has another length; allowed: that of {match['digest']}, in base64")
    if bool(match["salt"]) is (match["position"] == "none"):
        raise InvalidUser("the hash has a salt and no place for it, or a place for a salt and none")
    _decoded(match, "salt")


def _verify_emqx(match: re.Match[str], password: bytes) -> bool:
    salt = _decoded(match, "salt")
    data = salt + password if match["position"] == "prefix" else password + salt
    found = hashlib.new(match["digest"], data, usedforsecurity=False).digest()
    return hmac.compare_digest(found, _decoded(match, "hash"))


# --- bcrypt


def _check_bcrypt(match: re.Match[str]) -> None:
    _within("a cost of", int(match["cost"]), _BCRYPT_COSTS)


def _verify_bcrypt(match: re.Match[str], password: bytes) -> bool:
    import bcrypt

    # The bytes beyond the 72nd never counted, and this library refuses them.
    return bool(bcrypt.checkpw(password[:_BCRYPT_LONGEST], match[0].encode("ascii")))


_FORMS = (
    _ARGON2ID,
    _Form(
        "PBKDF2-SHA512",
        re.compile(rf"\$7\$(?P<iterations>[0-9]{{1,9}})\$(?P<salt>{_BASE64})\$(?P<hash>{_BASE64})"),
        _check_pbkdf2,
        _verify_pbkdf2,
    ),
    _Form(
        "salted SHA512", re.compile(rf"\$6\$(?P<salt>{_BASE64})\$(?P<hash>{_BASE64})"), _check_sha512, _verify_sha512
    ),
    _Form(
        "bcrypt",
        re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}"),
        _check_bcrypt,
        _verify_bcrypt,
    ),
    _Form(
        "PBKDF2",
        re.compile(
            rf"\$pbkdf2-(?P<digest>sha1|sha224|sha256|sha384|sha512)\$(?P<iterations>[0-9]{{1,9}})"
            rf"\$(?P<salt>{_BASE64})\$(?P<hash>{_BASE64})"
        ),
        _check_emqx_pbkdf2,
        _verify_emqx_pbkdf2,
    ),
    _Form(
        "one digest",
        re.compile(
            r"\$emqx-(?P<digest>md5|sha1|sha256|sha512)-(?P<position>prefix|suffix|none)"
            rf"\$(?P<salt>(?:{_BASE64})?)\$(?P<hash>{_BASE64})"
        ),
        _check_emqx,
        _verify_emqx,
    ),
)


# The threads that hash passwords: two, with a short line before them.
#
# How it works. A hash takes long on purpose: 20 ms of a processor and 19 MiB with the default parameters. So it is
# computed in threads of its own, without Python's lock, and the reactor serves other clients meanwhile. The threads
# have a lower priority than the reactor: where both want the same processor, clients that are connected come first.
# They do little besides the hash, since the reactor waits while one of them has Python's lock. At most 200 passwords
# wait. A client beyond them is refused as busy, and returns by itself: a longer line would only let all of them wait
# until their time for CONNECT is over.
#
# A verified password is remembered (:mod:`holdfast.identity.passwords`), so a client that returns to a running
# broker costs no hash.


T = TypeVar("T")

HASHING_THREADS = 2
MOST_WAITING = 200

#: added to the priority value of the threads, as by nice(1)
_NICENESS = 10


class Busy(Exception):
    """Too many passwords wait to be hashed."""


class HashingThreads(Service):
    """Runs functions in its threads, in the order of their calls. The threads begin with the first call."""

    def __init__(self, reactor: Any, threads: int = HASHING_THREADS, most_waiting: int = MOST_WAITING) -> None:
        self._reactor = reactor
        self._count = threads
        self._most = threads + most_waiting
        self._threads: list[threading.Thread] = []
        self._line: SimpleQueue[_Call | None] = SimpleQueue()
        self._stopped = False
        #: calls that run or wait, with those whose caller waits no more and that are not skipped yet
        self.pending = 0

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """Call a function in a thread; fires with its result. A cancelled call that still waits is skipped.

        Raises Busy.
        """
        if self.pending >= self._most or self._stopped:
            raise Busy(f"{self.pending} passwords wait to be hashed")
        if not self._threads:
            self._begin()
        self.pending += 1
        call = _Call(work)
        self._line.put(call)
        return call.answer

    def stopService(self) -> None:
        """End the threads after their present hash. Nobody waits for the others."""
        Service.stopService(self)
        self._stopped = True
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _begin(self) -> None:
        for number in range(self._count):
            thread = threading.Thread(target=self._serve, name=f"passwords {number}")
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        """Work in a thread. What it does with Python's lock is short, since the reactor waits meanwhile."""
        _step_back()
        while (call := self._line.get()) is not None:
            result: Any = None
            if not (call.cancelled or self._stopped):
                try:
                    result = call.work()
                except BaseException:  # noqa: BLE001 - the caller gets it
                    result = Failure()
            self._reactor.callFromThread(self._done, call, result)

    def _done(self, call: _Call, result: object) -> None:
        self.pending -= 1
        if not (call.cancelled or self._stopped):
            call.answer.callback(result)  # a Failure calls the errbacks


class _Call:
    """A function to be called in a thread."""

    __slots__ = ("answer", "cancelled", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.cancelled = False
        self.answer: Deferred[Any] = Deferred(self._cancel)

    def _cancel(self, _answer: Deferred[Any]) -> None:
        self.cancelled = True


def _step_back() -> None:
    """Lower the priority of this thread. On Linux each thread has its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


# The file of users with their hashed passwords: a line ``NAME:HASH`` for each, as mosquitto_passwd writes it.


#: bytes of the longest name
_LONGEST = 1024


def checked_name(name: str) -> str:
    """Return a name that a user can have. Raises InvalidUser."""
    if is_no_username(name):
        raise InvalidUser("a user name has at least one character, and no control characters")
    if name != name.strip() or name.startswith("#") or ":" in name:
        raise InvalidUser("a user name has no space at its ends, no colon, and no # at its start")
    if len(name.encode()) > _LONGEST:
        raise InvalidUser(f"a user name has at most {_LONGEST} bytes of UTF-8")
    return name


def _parsed(username: str, secret: str) -> tuple[str, str]:
    return checked_name(username), checked(secret)


_FORMAT = UserFormat(_parsed, "create it with: holdfast passwd add FILE USER")


def read(path: Path) -> tuple[dict[str, str], bool]:
    """Return the users with their hashes, and whether everybody on this machine may read them.

    Raises ConfigError with all problems: a line that is not understood would be a user without a password.
    """
    name = display_name(path)
    content, mode = contents(path, name, _FORMAT.advice)
    if mode & stat.S_IWOTH:
        raise problem(name, None, f"every user of this machine may write it; run: chmod o= {name}")
    users = {user: stored for user, stored, _ in entries(content, name, _FORMAT)}
    return users, bool(mode & stat.S_IROTH)


def set_user(path: Path, username: str, stored: str) -> bool:
    """Write a user to a file, and create the file if there is none; False if the user is new. Raises ConfigError."""
    return set_line(path, username, stored, _FORMAT)


def remove_user(path: Path, username: str) -> bool:
    """Remove a user from a file; False if there is no user of this name. Raises ConfigError."""
    return remove_line(path, username, _FORMAT)


def replace_hashes(path: Path, hashes: Mapping[str, tuple[str, str]]) -> None:
    """Replace the hashes of users, each from the old one to the new one. A hash that has changed since stays.

    Raises ConfigError.
    """
    replace_lines(path, hashes, _FORMAT)
