"""The API about bans. Paths and fields are those of EMQX; ``until`` may also be seconds since 1970."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, inlineCallbacks, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.arguments import decoded
from holdfast.admin.calls import DONE, Answer, Call, RefusedCall, answer, bad_request, not_found
from holdfast.auth.failures.ban import BadBan, Ban, ban_of, subject_of
from holdfast.auth.failures.ban_file import fields_of
from holdfast.auth.failures.bans import Bans
from holdfast.times import BadTime, moment_of

BANS_PREFIX = "/api/v5/banned"

#: seconds since the epoch of the latest end: the year 9999
_LATEST = 253402300799
_FIELDS = ("as", "who", "reason", "until")


class BanAPI:
    """Lists, adds and removes bans.

    ``store`` makes the operators' bans durable; its Deferred may fail with OSError. ``apply`` disconnects those that a
    new ban concerns. ``now`` returns milliseconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        bans: Bans,
        *,
        now: Callable[[], int],
        store: Callable[[Iterable[Ban]], Deferred[None]],
        apply: Callable[[Ban], object],
    ) -> None:
        self._bans = bans
        self._now = now
        self._store = store
        self._apply = apply
        self._lock = DeferredLock()  # the last change is the last one that is stored

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer a call. The Deferred fails only with CancelledError, if the caller cancels it."""
        return maybeDeferred(self._answer, call).addErrback(self._failed)

    def _answer(self, call: Call) -> Deferred[Answer]:
        names = [decoded(part) for part in call.path.removeprefix(BANS_PREFIX).split("/")[1:]]
        if call.arguments:
            raise bad_request("there are no arguments here")
        match call.method, names:
            case "GET", []:
                return succeed(answer({"data": [_shown(ban) for ban in self._bans]}))
            case "POST", []:
                return self._to_the_end(self._lock.run(self._add, self._ban_of(call)))
            case "DELETE", [kind, who]:
                return self._to_the_end(self._lock.run(self._remove, kind, who))
            case _, [] | [_, _]:
                allowed = "DELETE" if names else "GET, POST"
                raise RefusedCall(http.NOT_ALLOWED, "METHOD_NOT_ALLOWED", f"allowed here: {allowed}")
        raise not_found("there is no such path")

    def _to_the_end(self, change: Deferred[Answer]) -> Deferred[Answer]:
        """Return the answer to a change, which goes on if the caller leaves: a ban is not in force by halves."""
        told: Deferred[Answer] = Deferred()
        change.addErrback(self._failed).addCallback(told.callback)
        return told

    def _ban_of(self, call: Call) -> Ban:
        try:
            fields = json.loads(call.body)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or not {"as", "who"} <= fields.keys():
            raise bad_request('the body is a JSON object such as {"as": "peerhost", "who": "192.0.2.7"}')
        for name in fields:
            if name not in _FIELDS:
                raise bad_request(f"there is no field {name[:40]!a}; there are: {', '.join(_FIELDS)}")
        kind, who, reason = (fields.get(name, "") for name in ("as", "who", "reason"))
        if not all(isinstance(text, str) for text in (kind, who, reason)):
            raise bad_request("as, who and reason are strings")
        until = self._end_of(fields.get("until", "infinity"))
        return ban_of(kind, who, by=call.operator.name, reason=reason, at=self._now() // 1000, until=until)

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
        raise bad_request('until is a time such as "2026-11-21T10:00:00Z", seconds since 1970, or "infinity"')

    @inlineCallbacks
    def _add(self, ban: Ban) -> Generator[Deferred[Any], Any, Answer]:
        old = self._bans.add(ban)
        try:
            yield self._store(self._bans.kept)
        except OSError as error:
            self._bans.remove(ban.kind, ban.who)
            if old is not None:
                self._bans.load([old])
            raise _not_stored(error) from None
        self._apply(ban)
        shown = _shown(ban)
        return answer(shown, note=shown)

    @inlineCallbacks
    def _remove(self, kind: str, who: str) -> Generator[Deferred[Any], Any, Answer]:
        ban = self._bans.remove(*subject_of(kind, who))
        if ban is None:
            raise not_found(f"{who[:200]} is not banned as {kind}")
        try:
            yield self._store(self._bans.kept)
        except OSError as error:
            self._bans.load([ban])
            raise _not_stored(error) from None
        return DONE

    def _failed(self, failure: Failure) -> Answer:
        error = failure.value
        if isinstance(error, RefusedCall):
            return error.answer()
        if isinstance(error, BadBan):
            return bad_request(str(error)).answer()
        failure.trap(Exception)  # let SystemExit and KeyboardInterrupt pass
        if failure.check(CancelledError):
            failure.raiseException()
        self._log.failure("a call failed", failure)
        return RefusedCall(
            http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "this is a fault of the broker; see its log"
        ).answer()


def _not_stored(error: OSError) -> RefusedCall:
    message = f"nothing was changed: the bans cannot be stored: {error.strerror or error}"
    return RefusedCall(http.SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", message)


def _shown(ban: Ban) -> dict[str, Any]:
    """Return the fields of a ban, with times as text."""
    fields = fields_of(ban)
    for name in ("at", "until"):
        if isinstance(fields[name], int):
            fields[name] = f"{datetime.fromtimestamp(min(fields[name], _LATEST), UTC):%Y-%m-%dT%H:%M:%SZ}"
    return fields
