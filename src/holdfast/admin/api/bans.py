"""The API about bans. Paths and fields are those of EMQX; ``until`` may also be seconds since 1970."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, DeferredLock, succeed

from holdfast.admin.arguments import ANYTHING, STRING, TIME, array, check_fields, object_of, one_of, record, request
from holdfast.admin.call import (
    DONE,
    Answer,
    Call,
    Refusals,
    RefusedCall,
    Scope,
    answer,
    bad_request,
    not_found,
    unavailable,
)
from holdfast.admin.routing import NOTHING, Content, Route, in_path, routes_of
from holdfast.core.tickets import StorageFailure
from holdfast.core.units import LATEST, BadTime, moment_of, second_of
from holdfast.identity.bans import BadBan, Ban, Bans, Kind, ban_of, fields_of, subject_of
from holdfast.scheduling.waiting import as_deferred

BANS_PREFIX = "/api/v5/banned"

#: seconds since the epoch of the latest end: the year 9999
_LATEST = LATEST // 1000 - 1
_FIELDS = ("as", "who", "reason", "until")
_EXAMPLE = '{"as": "peerhost", "who": "192.0.2.7"}'
_KINDS = tuple(kind.value for kind in Kind)
_BAN = record(
    {"as": one_of(*_KINDS), "who": STRING, "by": STRING, "reason": STRING, "at": TIME, "until": STRING}
)  # fmt: skip
_REQUEST = request(
    {"as": one_of(*_KINDS), "who": STRING, "reason": STRING, "until": ANYTHING}, required=("as", "who")
)  # fmt: skip


def _bad_ban(error: BadBan) -> RefusedCall:
    return bad_request(str(error))


_REFUSALS: Refusals = {BadBan: _bad_ban}


class IBanStore(Protocol):
    """Makes changes of the operators' bans durable. They are made in memory before."""

    def put(self, ban: Ban) -> Deferred[None]:
        """Store a ban, in place of one of the same name."""

    def remove(self, ban: Ban) -> Deferred[None]:
        """Remove a ban."""


class BanFile:
    """The bans in the file of a data directory: each change stores all of them. ``write`` replaces the file."""

    def __init__(self, bans: Bans, write: Callable[[Iterable[Ban]], Deferred[None]]) -> None:
        self._bans = bans
        self._write = write

    def put(self, _ban: Ban) -> Deferred[None]:
        """Store all bans. Fails with OSError."""
        return self._write(self._bans.kept)

    remove = put


class BanAPI:
    """Lists, adds and removes bans.

    ``store`` makes a change durable; its Deferred may fail with OSError or StorageFailure. ``apply`` disconnects those
    that a new ban concerns. ``now`` returns milliseconds since the epoch.
    """

    def __init__(
        self,
        bans: Bans,
        *,
        now: Callable[[], int],
        store: IBanStore,
        apply: Callable[[Ban], object],
    ) -> None:
        self._bans = bans
        self._now = now
        self._store = store
        self._apply = apply
        self._lock = DeferredLock()  # the last change is the last one that is stored
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=BANS_PREFIX,
        scope=Scope.READ,
        summary="List all bans",
        answers={200: Content(record({"data": array(_BAN)}), "the bans")},
    )
    def list_bans(self, _call: Call) -> Deferred[Answer]:
        """List the bans."""
        return succeed(answer({"data": [_shown(ban) for ban in self._bans]}))

    @Route(
        method="POST",
        path=BANS_PREFIX,
        scope=Scope.ADMIN,
        summary="Ban an address, a network, a user or a Client Identifier, and disconnect the banned clients",
        body=Content(_REQUEST, "the ban"),
        answers={200: Content(_BAN, "the ban")},
        refusals=_REFUSALS,
        finishes=True,
    )
    def add(self, call: Call) -> Deferred[Answer]:
        """Ban."""
        return self._lock.run(self._add, self._ban_of(call))

    @Route(
        method="DELETE",
        path=f"{BANS_PREFIX}/{{as}}/{{who}}",
        scope=Scope.ADMIN,
        summary="Remove a ban",
        parameters=(
            in_path("as", one_of(*_KINDS), "what the ban names"),
            in_path("who", STRING, "the name in the ban"),
        ),
        answers={204: NOTHING},
        refusals=_REFUSALS,
        finishes=True,
    )
    def remove(self, call: Call) -> Deferred[Answer]:
        """Lift a ban."""
        return self._lock.run(self._remove, call.arguments["as"], call.arguments["who"])

    def _ban_of(self, call: Call) -> Ban:
        fields = object_of(call, _EXAMPLE)
        check_fields(fields, _FIELDS)
        for name in ("as", "who"):
            if name not in fields:
                raise bad_request(f"{name} is missing; the body is a JSON object such as {_EXAMPLE}", name)
        kind, who, reason = (fields.get(name, "") for name in ("as", "who", "reason"))
        if not all(isinstance(text, str) for text in (kind, who, reason)):
            raise bad_request("as, who and reason are strings")
        until = self._end_of(fields.get("until", "infinity"))
        return ban_of(kind, who, by=call.caller.name, reason=reason, at=self._now() // 1000, until=until)

    def _end_of(self, until: object) -> int | None:
        if until == "infinity":
            return None
        if type(until) is int and 0 <= until <= _LATEST:
            return until
        try:
            if isinstance(until, str) and "-" in until:
                return moment_of(until, self._now()) // 1000
        except BadTime:
            pass
        allowed = 'a time such as "2026-11-21T10:00:00Z", seconds since 1970, or "infinity"'
        raise bad_request(f"until is {allowed}", "until", allowed)

    @as_deferred
    async def _add(self, ban: Ban) -> Answer:
        old = self._bans.add(ban)
        try:
            await self._store.put(ban)
        except (OSError, StorageFailure) as error:
            self._bans.remove(ban.kind, ban.who)
            if old is not None:
                self._bans.load([old])
            raise _not_stored(error) from None
        self._apply(ban)
        shown = _shown(ban)
        return answer(shown, note=shown)

    @as_deferred
    async def _remove(self, kind: str, who: str) -> Answer:
        ban = self._bans.remove(*subject_of(kind, who))
        if ban is None:
            raise not_found(f"{who[:200]} is not banned as {kind}")
        try:
            await self._store.remove(ban)
        except (OSError, StorageFailure) as error:
            self._bans.load([ban])
            raise _not_stored(error) from None
        return DONE


def _not_stored(error: OSError | StorageFailure) -> RefusedCall:
    why = error.detail if isinstance(error, StorageFailure) else error.strerror or error
    return unavailable(f"nothing was changed: the bans cannot be stored: {why}")


def _shown(ban: Ban) -> dict[str, Any]:
    """Return the fields of a ban, with times as text."""
    fields = fields_of(ban)
    for name in ("at", "until"):
        if isinstance(fields[name], int):
            fields[name] = second_of(1000 * fields[name])
    return fields
