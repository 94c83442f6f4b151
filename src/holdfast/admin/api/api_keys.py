"""The API about API keys. A key and its secret are told once, in the answer that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from holdfast.admin.arguments import STRING, TIME, array, check_fields, object_of, record, request
from holdfast.admin.call import DONE, Answer, Call, Refusals, Scope, answer, bad_request, conflict, not_found
from holdfast.admin.routing import NOTHING, Content, Route, in_path, routes_of
from holdfast.core.units import BadTime, moment_of, second_of
from holdfast.identity.accounts import AlreadyThere, BadValue, Unknown
from holdfast.identity.api_keys import Keys, StoredKey
from holdfast.identity.chain import name_problem

KEYS_PREFIX = "/api/v5/api_key"

#: the scopes that a key may have
SCOPES = tuple(scope.value for scope in Scope if scope is not Scope.OPEN)

_FIELDS = ("name", "scopes", "expired_at")
_EXAMPLE = '{"name": "grafana", "scopes": ["read"], "expired_at": "infinity"}'
_EXPIRY = 'a future time such as "2027-01-31T00:00:00Z", or "infinity"'
_LONGEST_NAME = 64
_SCOPE = {"type": "string", "enum": list(SCOPES)}
_KEY = record(
    {
        "name": STRING,
        "api_key": STRING,
        "scopes": array(_SCOPE),
        "created_by": STRING,
        "created_at": TIME,
        "expired_at": STRING,
        "expired": {"type": "boolean"},
    }
)
_MADE = record({"name": STRING, "api_key": STRING, "api_secret": STRING, "scopes": array(_SCOPE)})
_REFUSALS: Refusals = {
    AlreadyThere: lambda error: conflict(str(error)),
    Unknown: lambda error: not_found(str(error)),
    BadValue: lambda error: bad_request(str(error)),
}


class KeyAPI:
    """Lists, adds and revokes API keys. ``now`` returns milliseconds since the epoch."""

    def __init__(self, keys: Keys, now: Callable[[], int]) -> None:
        self._keys = keys
        self._now = now
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=KEYS_PREFIX,
        scope=Scope.ADMIN,
        summary="List all API keys without their secrets",
        answers={200: Content(record({"data": array(_KEY)}), "the keys")},
    )
    def list_keys(self, _call: Call) -> Deferred[Answer]:
        """List the keys by their names."""
        return self._keys.all().addCallback(lambda keys: answer({"data": [self._shown(key) for key in keys]}))

    @Route(
        method="POST",
        path=KEYS_PREFIX,
        scope=Scope.ADMIN,
        stores=True,
        summary="Create an API key; only this answer contains its secret",
        body=Content(
            request(
                {
                    "name": {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME},
                    "scopes": {**array(_SCOPE), "minItems": 1},
                    "expired_at": STRING,
                },
                required=("name", "scopes"),
            ),
            "the key",
        ),
        answers={200: Content(_MADE, "the key and its secret")},
        refusals=_REFUSALS,
        finishes=True,
    )
    def add(self, call: Call) -> Deferred[Answer]:
        """Make a key."""
        fields = object_of(call, _EXAMPLE)
        check_fields(fields, _FIELDS)
        name, scopes = _name(fields.get("name")), _scopes(fields.get("scopes"))
        expires_at = self._expiry(fields.get("expired_at", "infinity"))

        def made(result: tuple[StoredKey, str]) -> Answer:
            key, secret = result
            shown = {**self._shown(key), "api_secret": secret}
            return answer(shown, note={"api_key": name, "scopes": sorted(scopes), "key": key.key})

        return self._keys.add(name, scopes, expires_at, str(call.caller)).addCallback(made)

    @Route(
        method="DELETE",
        path=f"{KEYS_PREFIX}/{{name}}",
        scope=Scope.ADMIN,
        stores=True,
        summary="Revoke an API key",
        parameters=(in_path("name", STRING, "the name of the key"),),
        answers={204: NOTHING},
        refusals=_REFUSALS,
        finishes=True,
    )
    def remove(self, call: Call) -> Deferred[Answer]:
        """Revoke a key."""
        name = call.arguments["name"]
        return self._keys.remove(name).addCallback(lambda _: Answer(DONE.status, note={"api_key": name}))

    def _expiry(self, text: object) -> int | None:
        if text == "infinity":
            return None
        try:
            if isinstance(text, str) and "-" in text:
                expires_at = moment_of(text, self._now())
                if expires_at > self._now():
                    return expires_at
        except BadTime:
            pass
        raise bad_request(f"expired_at is {_EXPIRY}", "expired_at", _EXPIRY)

    def _shown(self, key: StoredKey) -> dict[str, Any]:
        return {
            "name": key.name,
            "api_key": key.key,
            "scopes": sorted(key.scopes),
            "created_by": key.created_by,
            "created_at": second_of(key.created_at),
            "expired_at": "infinity" if key.expires_at is None else second_of(key.expires_at),
            "expired": key.is_over(self._now()),
        }


def _name(name: object) -> str:
    allowed = f"a string of 1 to {_LONGEST_NAME} characters without + # / and control characters"
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or name_problem(name) is not None:
        raise bad_request(f"name is {allowed}", "name", allowed)
    return name


def _scopes(scopes: object) -> frozenset[str]:
    known = isinstance(scopes, list) and all(isinstance(scope, str) and scope in SCOPES for scope in scopes)
    if not isinstance(scopes, list) or not scopes or not known:
        allowed = f"a list of one or more of {', '.join(SCOPES)}"
        raise bad_request(f"scopes is {allowed}", "scopes", allowed)
    return frozenset(scopes)
