"""The API about users in the database. Passwords come in the body of a call, and leave it as hashes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.accounts.refusals import AlreadyThere, Unknown
from holdfast.accounts.user_rows import StoredUser
from holdfast.accounts.users import Users
from holdfast.admin.arguments import number_of
from holdfast.admin.bodies import (
    check_arguments,
    check_fields,
    not_allowed,
    object_of,
    refusal_of,
    rest_of,
    unavailable,
)
from holdfast.admin.calls import DONE, Answer, Call, RefusedCall, answer, bad_request, not_found
from holdfast.auth.names import name_problem
from holdfast.auth.passwords.hashing_threads import Busy
from holdfast.times import text_of

USERS_PREFIX = "/api/v5/users"

#: computes the hash of a password outside of the reactor; may raise Busy
HashPassword = Callable[[bytes], Deferred[str]]

_FIELDS = ("user_id", "password", "groups")
_EXAMPLE = '{"user_id": "alice", "password": "...", "groups": ["operators"]}'
_MOST_GROUPS = 100
_LONGEST_PASSWORD = 65535
_PAGE, _MOST = 200, 1000


class UserAPI:
    """Lists, adds, changes and removes users."""

    _log = Logger()

    def __init__(self, users: Users, hash_password: HashPassword) -> None:
        self._users = users
        self._hash_password = hash_password

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer a call. The Deferred fails only with CancelledError, if the caller cancels it."""
        return maybeDeferred(self._answer, call).addErrback(self._failed)

    def _answer(self, call: Call) -> Deferred[Answer]:
        names = rest_of(call, USERS_PREFIX)
        check_arguments(call, ("limit", "cursor", "user_id") if (call.method, names) == ("GET", []) else ())
        match call.method, names:
            case "GET", []:
                return self._list(call)
            case "POST", []:
                return self._add(object_of(call, _EXAMPLE))
            case "GET", [username]:
                return self._users.one(username).addCallback(lambda user: answer(_shown(username, user)))
            case "PUT", [username]:
                return self._change(username, object_of(call, '{"password": "...", "groups": []}'))
            case "DELETE", [username]:
                return self._users.remove(username).addCallback(lambda _: _noted(username))
            case _, []:
                raise not_allowed("GET", "POST")
            case _, [_]:
                raise not_allowed("GET", "PUT", "DELETE")
        raise not_found("there is no such path")

    def _list(self, call: Call) -> Deferred[Answer]:
        named = call.arguments.get("user_id")
        if named is not None:
            return self._named(named)
        most = number_of(call.arguments, "limit", _PAGE, _MOST)
        after = call.arguments.get("cursor", "")
        if "\0" in after:
            raise bad_request("cursor: copy it unchanged from meta.cursor")

        def shown(found: list[tuple[str, StoredUser]]) -> Answer:
            more = {"cursor": found[-1][0]} if len(found) == most else {}
            meta = {"limit": most, **more}
            return answer({"data": [_shown(username, user) for username, user in found], "meta": meta})

        return self._users.page(after, most).addCallback(shown)

    def _named(self, username: str) -> Deferred[Answer]:
        """Answer with a list of the one user of this name, or of none."""

        def none(failure: Failure) -> list[dict[str, Any]]:
            failure.trap(Unknown)
            return []

        found = self._users.one(username).addCallback(lambda user: [_shown(username, user)]).addErrback(none)
        return found.addCallback(lambda data: answer({"data": data, "meta": {}}))

    def _add(self, fields: dict[str, Any]) -> Deferred[Answer]:
        check_fields(fields, _FIELDS)
        username = _name(fields.get("user_id"), "user_id")
        groups = _groups(fields.get("groups", []))
        hashed = self._hashed(_password(fields.get("password")))

        def add(stored: str) -> Deferred[StoredUser]:
            return self._users.add(username, stored, groups)

        return hashed.addCallback(add).addCallback(lambda user: _answered(username, user))

    def _change(self, username: str, fields: dict[str, Any]) -> Deferred[Answer]:
        check_fields(fields, _FIELDS[1:])
        if not fields:
            raise bad_request("name what changes: password, groups or both")
        groups = _groups(fields["groups"]) if "groups" in fields else None
        if "password" in fields:
            password = _password(fields["password"])
            # An unknown user is refused before the work, and found out again in the transaction.
            hashed = self._users.one(username).addCallback(lambda _: self._hashed(password))
        else:
            hashed = succeed(None)

        def change(stored: str | None) -> Deferred[StoredUser]:
            return self._users.change(username, stored, groups)

        return hashed.addCallback(change).addCallback(lambda user: _answered(username, user))

    def _hashed(self, password: bytes) -> Deferred[str]:
        try:
            return self._hash_password(password)
        except Busy as busy:
            raise unavailable(f"{busy}; try it again later") from None

    def _failed(self, failure: Failure) -> Answer:
        if isinstance(failure.value, Unknown):
            return not_found(str(failure.value)).answer()
        if isinstance(failure.value, AlreadyThere):
            return RefusedCall(http.CONFLICT, "ALREADY_EXISTS", str(failure.value)).answer()
        return refusal_of(failure, self._log)


def _name(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise bad_request(f"{what} is a string")
    problem = name_problem(name)
    if problem is None and name[0] == "$":
        problem = "begins with $, which is for names of the broker such as $guest"
    if problem is not None:
        raise bad_request(f"{what}: {name[:40]!a} {problem}")
    return name


def _password(password: object) -> bytes:
    """Return the password as bytes. No message shows it."""
    if not isinstance(password, str) or not password:
        raise bad_request("password is a string of at least one character")
    try:
        found = password.encode()
    except UnicodeEncodeError:
        raise bad_request("the password is not valid Unicode") from None
    if len(found) > _LONGEST_PASSWORD:
        raise bad_request(f"a password in MQTT has at most {_LONGEST_PASSWORD} bytes")
    return found


def _groups(groups: object) -> frozenset[str]:
    if not isinstance(groups, list) or len(groups) > _MOST_GROUPS:
        raise bad_request(f"groups is a list of at most {_MOST_GROUPS} names")
    return frozenset(_name(group, "groups") for group in groups)


def _shown(username: str, user: StoredUser) -> dict[str, Any]:
    return {
        "user_id": username,
        "groups": sorted(user.groups),
        "created_at": text_of(user.created_at),
        "changed_at": text_of(user.changed_at),
    }


def _answered(username: str, user: StoredUser) -> Answer:
    shown = _shown(username, user)
    return answer(shown, note={"user": username, "groups": shown["groups"]})


def _noted(username: str) -> Answer:
    return Answer(DONE.status, note={"user": username})
