"""Users of SCRAM who are removed, or have another password, are revoked while they are connected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from holdfast.identity.interfaces import Principal
from holdfast.identity.scram import LOOK_INTERVAL, Revocations, UsersFile, new_verifier, remove_user, set_user

PEOPLE = [Principal("c", name, method="scram") for name in ("alice", "bob", "carol")]
OTHERS = [Principal("c", "alice", method="passwords"), Principal("c", None)]


def test_users_who_are_gone_or_have_another_password_are_revoked_and_no_others(tmp_path: Path) -> None:
    path, clock = tmp_path / "users", Clock()
    for name in ("alice", "bob", "carol"):
        set_user(path, name, new_verifier("pencil", 4096))
    revoked: list[list[str]] = []

    def note(matching: Callable[[Principal], bool]) -> None:
        assert not any(map(matching, OTHERS))
        revoked.append([str(each.username) for each in PEOPLE if matching(each)])

    file = UsersFile(path)
    service = Revocations({"scram": file}, clock, note)
    service.startService()
    clock.advance(LOOK_INTERVAL)
    remove_user(path, "alice")
    set_user(path, "bob", new_verifier("eraser", 4096))
    set_user(path, "dora", new_verifier("pencil", 4096))
    file.users()  # as an exchange does, which revokes nobody itself
    assert revoked == []
    clock.advance(LOOK_INTERVAL)
    clock.advance(LOOK_INTERVAL)
    assert revoked == [["alice", "bob"]]
    remove_user(path, "dora")
    path.write_text("damaged\n")
    clock.advance(LOOK_INTERVAL)
    assert len(revoked) == 1
    service.stopService()
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize("change", ["removed", "changed", "removed and added again"])
def test_a_user_who_came_logged_in_and_changed_between_two_looks_is_revoked(tmp_path: Path, change: str) -> None:
    """Exchanges have read the file meanwhile, so no single reading of the look shows the change."""
    path, clock = tmp_path / "users", Clock()
    set_user(path, "alice", new_verifier("pencil", 4096))
    file = UsersFile(path)
    revoked: list[bool] = []
    service = Revocations({"scram": file}, clock, lambda matching: revoked.extend(map(matching, PEOPLE)))
    service.startService()
    verifier = new_verifier("pencil", 4096)
    set_user(path, "bob", verifier)
    assert "bob" in file.users()  # his exchange reads the file
    if change == "changed":
        set_user(path, "bob", new_verifier("eraser", 4096))
    else:
        remove_user(path, "bob")
    file.users()  # an exchange of somebody else
    if change == "removed and added again":
        set_user(path, "bob", verifier)
    clock.advance(LOOK_INTERVAL)
    assert revoked == [False, True, False]
    clock.advance(LOOK_INTERVAL)
    assert len(revoked) == 3
    service.stopService()
