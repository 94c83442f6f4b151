"""The API about users in the database. Passwords come in the body of a call, and leave it as hashes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast.admin.arguments import (
    CURSOR_SCHEMA,
    STRING,
    TIME,
    array,
    check_fields,
    cursor_of,
    number_of,
    object_of,
    page,
    record,
    request,
    whole,
)
from holdfast.admin.call import (
    DONE,
    Answer,
    Call,
    Refusals,
    Scope,
    answer,
    bad_request,
    conflict,
    not_found,
    unavailable,
)
from holdfast.admin.routing import NOTHING, Content, Route, in_path, query, routes_of
from holdfast.core.units import second_of
from holdfast.identity.accounts import AlreadyThere, Unknown
from holdfast.identity.chain import name_problem
from holdfast.identity.hashes import Busy
from holdfast.identity.users import StoredUser, Users

USERS_PREFIX = "/api/v5/users"

#: computes the hash of a password outside of the reactor; may raise Busy
HashPassword = Callable[[bytes], Deferred[str]]

_FIELDS = ("user_id", "password", "groups")
_EXAMPLE = '{"user_id": "alice", "password": "...", "groups": ["operators"]}'
_MOST_GROUPS = 100
_LONGEST_PASSWORD = 65535
_PAGE, _MOST = 200, 1000
_USER = record({"user_id": STRING, "groups": array(STRING), "created_at": TIME, "changed_at": TIME})
_CHANGES = {"password": {"type": "string", "minLength": 1}, "groups": array(STRING)}
_REFUSALS: Refusals = {
    Unknown: lambda error: not_found(str(error)),
    AlreadyThere: lambda error: conflict(str(error)),
}


_USER_ID = in_path("user_id", STRING, "the user's name")


class UserAPI:
    """Lists, adds, changes and removes users."""

    def __init__(self, users: Users, hash_password: HashPassword) -> None:
        self._users = users
        self._hash_password = hash_password
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=USERS_PREFIX,
        scope=Scope.READ,
        summary="List a page of the users in the database, sorted by name, or the user named by user_id",
        parameters=(
            query("limit", whole(1, _MOST, _PAGE), "the most users of a page"),
            query("cursor", CURSOR_SCHEMA, "where to go on: meta.cursor of the answer before"),
            query("user_id", STRING, "the name of the one user that is asked for"),
        ),
        answers={200: Content(page(_USER), "the page")},
        refusals=_REFUSALS,
    )
    def list_users(self, call: Call) -> Deferred[Answer]:
        """List a page of users by name, or the one that is asked for."""
        most = number_of(call.arguments, "limit", _PAGE, _MOST)
        after = cursor_of(call.arguments)
        named = call.arguments.get("user_id")
        if named is not None:
            return self._named(named)

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

        if name_problem(username) is not None:
            return succeed(answer({"data": [], "meta": {}}))
        found = self._users.one(username).addCallback(lambda user: [_shown(username, user)]).addErrback(none)
        return found.addCallback(lambda data: answer({"data": data, "meta": {}}))

    @Route(
        method="GET",
        path=f"{USERS_PREFIX}/{{user_id}}",
        scope=Scope.READ,
        summary="Show a user",
        parameters=(_USER_ID,),
        answers={200: Content(_USER, "the user")},
        refusals=_REFUSALS,
    )
    def one(self, call: Call) -> Deferred[Answer]:
        """Show a user."""
        username = _name_in_path(call)
        return self._users.one(username).addCallback(lambda user: answer(_shown(username, user)))

    @Route(
        method="POST",
        path=USERS_PREFIX,
        scope=Scope.ADMIN,
        stores=True,
        summary="Add a user",
        body=Content(request({"user_id": STRING, **_CHANGES}, ("user_id", "password")), "the user"),
        answers={200: Content(_USER, "the user")},
        refusals=_REFUSALS,
        finishes=True,
    )
    def add(self, call: Call) -> Deferred[Answer]:
        """Add a user."""
        fields = object_of(call, _EXAMPLE)
        check_fields(fields, _FIELDS)
        username = _name(fields.get("user_id"), "user_id")
        groups = _groups(fields.get("groups", []))
        hashed = self._hashed(_password(fields.get("password")))

        def add(stored: str) -> Deferred[StoredUser]:
            return self._users.add(username, stored, groups)

        return hashed.addCallback(add).addCallback(lambda user: _answered(username, user))

    @Route(
        method="PUT",
        path=f"{USERS_PREFIX}/{{user_id}}",
        scope=Scope.ADMIN,
        stores=True,
        summary="Change a user's password, groups or both",
        parameters=(_USER_ID,),
        body=Content(request(_CHANGES), "what changes"),
        answers={200: Content(_USER, "the user")},
        refusals=_REFUSALS,
        finishes=True,
    )
    def change(self, call: Call) -> Deferred[Answer]:
        """Change a user's password, groups or both."""
        username, fields = _name_in_path(call), object_of(call, '{"password": "...", "groups": []}')
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

    @Route(
        method="DELETE",
        path=f"{USERS_PREFIX}/{{user_id}}",
        scope=Scope.ADMIN,
        stores=True,
        summary="Remove a user, and disconnect this user's clients",
        parameters=(_USER_ID,),
        answers={204: NOTHING},
        refusals=_REFUSALS,
        finishes=True,
    )
    def remove(self, call: Call) -> Deferred[Answer]:
        """Remove a user."""
        username = _name_in_path(call)
        return self._users.remove(username).addCallback(lambda _: _noted(username))

    def _hashed(self, password: bytes) -> Deferred[str]:
        try:
            return self._hash_password(password)
        except Busy as busy:
            raise unavailable(f"{busy}; try it again later") from None


def _name_in_path(call: Call) -> str:
    """Return the name in the path. One that no user can have is unknown: not every database can be asked for it."""
    username = call.arguments["user_id"]
    if name_problem(username) is not None:
        raise not_found(f"there is no user {username[:40]!a}")
    return username


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
        "created_at": second_of(user.created_at),
        "changed_at": second_of(user.changed_at),
    }


def _answered(username: str, user: StoredUser) -> Answer:
    shown = _shown(username, user)
    return answer(shown, note={"user": username, "groups": shown["groups"]})


def _noted(username: str) -> Answer:
    return Answer(DONE.status, note={"user": username})
