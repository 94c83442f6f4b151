"""The API about bans: EMQX's paths and fields, durable changes, and clear refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, fail, succeed

from holdfast.admin.api.bans import BANS_PREFIX, BanAPI, BanFile
from holdfast.admin.call import Answer, Call, Caller, Scope, Via
from holdfast.admin.routing import RoutingTable
from holdfast.identity.bans import Ban, Bans, Exempt
from tests.storage.doubles import result_of

NOW = 1_800_000_000
ALICE = Caller("alice", 1000, frozenset({Scope.ADMIN}), via=Via.CONTROL)


class Office:
    """The API about bans, with a store that may be broken."""

    def __init__(self) -> None:
        self.bans = Bans(now=lambda: NOW, exempt=Exempt())
        self.stored: list[Ban] | None = None
        self.applied: list[Ban] = []
        self.witnessed: list[tuple[str, str, int]] = []
        self.broken = False
        self.writing: Deferred[None] | None = None
        api = BanAPI(
            self.bans, now=lambda: NOW * 1000, store=BanFile(self.bans, self._store), apply=self.applied.append
        )
        self.table = RoutingTable(api.routes, self._witness)

    def _store(self, kept: Iterable[Ban]) -> Deferred[None]:
        if self.broken:
            return fail(OSError(28, "No space left on device"))
        self.stored = list(kept)
        return self.writing or succeed(None)

    def _witness(self, call: Call, answer: Answer) -> None:
        self.witnessed.append((call.method, call.caller.name, answer.status))

    def call(self, method: str, path: str = "", body: object = None) -> tuple[int, Any]:
        """Make a call as the local user alice; return status and content."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        call = Call(method, BANS_PREFIX + path, {}, data, ALICE)
        found: Answer = result_of(self.table.answer(call))
        return found.status, json.loads(found.body) if found.body else None


@pytest.fixture
def office() -> Office:
    return Office()


def test_a_ban_is_stored_applied_listed_and_removed(office: Office) -> None:
    status, added = office.call("POST", body={"as": "peerhost_net", "who": "192.0.2.0/24", "until": NOW + 60})
    assert status == 200
    assert added == {
        "as": "peerhost_net", "who": "192.0.2.0/24", "by": "alice", "reason": "", "at": "2027-01-15T08:00:00Z",
        "until": "2027-01-15T08:01:00Z",
    }  # fmt: skip
    assert office.stored == office.applied == list(office.bans)
    assert office.call("GET") == (200, {"data": [added]})
    assert office.call("DELETE", "/peerhost_net/192.0.2.0%2F24") == (204, None)
    assert office.stored == list(office.bans) == []


def test_a_caller_that_leaves_neither_halves_a_change_nor_hides_it(office: Office) -> None:
    writing: Deferred[None] = Deferred()
    office.writing = writing
    body = json.dumps({"as": "username", "who": "bob"}).encode()
    answering = office.table.answer(Call("POST", BANS_PREFIX, {}, body, ALICE))
    answering.addErrback(lambda failure: failure.trap(CancelledError))
    answering.cancel()
    assert office.applied == []
    writing.callback(None)
    assert office.witnessed == [("POST", "alice", 200)]
    assert office.applied == list(office.bans) == office.stored
    assert len(office.applied) == 1


def test_each_change_is_told_with_its_operator_and_reads_are_not(office: Office) -> None:
    office.call("POST", body={"as": "username", "who": "bob"})
    office.call("GET")
    office.call("DELETE", "/username/nobody")
    assert office.witnessed == [("POST", "alice", 200), ("DELETE", "alice", 404)]


@pytest.mark.parametrize("until", ["infinity", "2027-01-15T09:00:00+00:00", NOW + 1])
def test_the_end_may_be_written_in_three_ways(office: Office, until: object) -> None:
    assert office.call("POST", body={"as": "clientid", "who": "pump", "until": until})[0] == 200


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", {}, {"as": "peerhost"}, {"as": "peerhost", "who": "192.0.2.0/24"}, {"as": "x", "who": "y"},
     {"as": "username", "who": 1}, {"as": "username", "who": "bob", "until": True}, b"[" * 100_000,
     {"as": "username", "who": "bob", "until": "tomorrow"}, {"as": "username", "who": "bob", "until": NOW},
     {"as": "username", "who": "bob", "until": 10**30}, {"as": "username", "who": "bob", "colour": "red"},
     {"as": "peerhost", "who": "127.0.0.1"}],
)  # fmt: skip
def test_a_bad_call_changes_nothing_and_is_explained(office: Office, body: object) -> None:
    status, content = office.call("POST", body=body)
    assert (status, content["code"]) == (400, "BAD_REQUEST")
    assert list(office.bans) == []
    assert office.stored is None


def test_a_ban_that_cannot_be_stored_is_not_in_force(office: Office) -> None:
    office.call("POST", body={"as": "username", "who": "bob", "reason": "old"})
    office.broken = True
    for method, path, body in (
        ("POST", "", {"as": "username", "who": "alice"}),
        ("POST", "", {"as": "username", "who": "bob", "reason": "new"}),
        ("DELETE", "/username/bob", None),
    ):
        status, content = office.call(method, path, body)
        assert status == 503
        assert "No space left" in content["message"]
    assert [(ban.who, ban.reason) for ban in office.bans] == [("bob", "old")]
    assert office.bans.has_user("bob")
    assert not office.bans.has_user("alice")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("PUT", "", 405), ("GET", "/username/bob", 405), ("DELETE", "", 405), ("GET", "/a", 404),
     ("DELETE", "/a/b/c", 404), ("DELETE", "/username/bob", 404), ("DELETE", "/x/bob", 400),
     ("DELETE", "/username/%ff", 400)],
)  # fmt: skip
def test_other_calls_are_refused(office: Office, method: str, path: str, status: int) -> None:
    assert office.call(method, path)[0] == status


def test_other_paths_are_not_found(office: Office) -> None:
    assert result_of(office.table.answer(Call("GET", f"{BANS_PREFIX}x", {}))).status == 404
