"""Which Principals a changed configuration does not admit any more."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from holdfast.broker.identity import AuthenticationParts, EndedIdentities
from holdfast.config import load
from holdfast.identity.authorizer import PresentAuthorizer
from holdfast.identity.interfaces import AnonymousAuthenticator, Principal
from holdfast.identity.scram import UsersFile, Verifier, new_verifier, remove_user, set_user

OPEN = "[listeners.a]\nallow_anonymous = true\n"
CLOSED = "[listeners.a]\n"
SCRAM = '[authentication.s]\ntype = "scram"\npath = "s"\n'
TOKENS = '[authentication.s]\ntype = "jwt"\njwks = "k"\nalgorithms = ["RS256"]\nissuer = "x"\n'


def parts(folder: Path, text: str, **users: str) -> AuthenticationParts:
    """The parts of a configuration, with these users of SCRAM."""
    file = folder / "holdfast.toml"
    file.write_text(text)
    return AuthenticationParts(
        config=load(file),
        authenticator=AnonymousAuthenticator(),
        scram_files={"s": users_file(folder, users)} if users else {},
    )


def users_file(folder: Path, passwords: Mapping[str, str]) -> UsersFile:
    """A file of SCRAM users with these passwords."""
    path = folder / "s"
    for user in UsersFile(path).known if path.exists() else ():
        remove_user(path, user)
    for user, password in passwords.items():
        set_user(path, user, verifier(password))
    return UsersFile(path)


@cache
def verifier(password: str) -> Verifier:
    """The same verifier whenever it is asked for."""
    return new_verifier(password, 4096)


@pytest.mark.parametrize(
    ("before", "after", "username", "method", "ends"),
    [
        (OPEN, OPEN + SCRAM, None, "", False),  # a guest, where guests are admitted still
        (CLOSED, CLOSED + SCRAM, None, "", True),
        (OPEN, OPEN + SCRAM, "alice", "", True),  # a name that nobody has proved
        (OPEN, OPEN, "alice", "", False),
        (OPEN + SCRAM, OPEN, "alice", "s", True),  # the method is gone
        (OPEN + SCRAM, "[listeners.a]\nauthentication = []\nallow_anonymous = true\n" + SCRAM, "alice", "s", True),
        (CLOSED + SCRAM, CLOSED + TOKENS, "alice", "s", True),  # the name is that of another type
        (CLOSED + TOKENS, CLOSED + TOKENS.replace('"x"', '"y"'), "alice", "s", False),  # judged when it connects
        (CLOSED + SCRAM, "[listeners.b]\n" + SCRAM, "alice", "s", False),  # told that the listener is gone
    ],
)
def test_identities_end_with_what_admitted_them(
    tmp_path: Path, before: str, after: str, username: str | None, method: str, ends: bool
) -> None:
    ended = EndedIdentities(parts(tmp_path, before), parts(tmp_path, after))
    assert ended(Principal("c", username, listener="a", method=method)) is ends


def test_users_who_are_gone_or_have_another_password_end(tmp_path: Path) -> None:
    ended = EndedIdentities(
        parts(tmp_path, CLOSED + SCRAM, alice="1", bob="2", carol="3"),
        parts(tmp_path, CLOSED + SCRAM, alice="1", bob="9"),
    )
    users = ("alice", "bob", "carol")
    assert [ended(Principal("c", user, listener="a", method="s")) for user in users] == [False, True, True]


def test_users_who_came_after_the_start_and_changed_before_the_reload_end(tmp_path: Path) -> None:
    """The look at the file did not come in between, and begins anew with the reload."""
    before = parts(tmp_path, CLOSED + SCRAM, alice="1")
    for password in ("2", "9"):
        set_user(tmp_path / "s", "bob", verifier(password))
        before.scram_files["s"].users()  # an exchange reads the file
    set_user(tmp_path / "s", "carol", verifier("3"))
    before.scram_files["s"].users()
    ended = EndedIdentities(before, parts(tmp_path, CLOSED + SCRAM, alice="1", bob="9"))
    users = ("alice", "bob", "carol")
    assert [ended(Principal("c", user, listener="a", method="s")) for user in users] == [False, True, True]


def test_the_effort_of_the_shared_authorizer_never_falls() -> None:
    """Walks that go on while it is exchanged count with differences of it."""

    class Costly(PresentAuthorizer):
        effort = 0

        def __init__(self, effort: int) -> None:
            from holdfast.identity.interfaces import UnrestrictedAuthorizer

            super().__init__(UnrestrictedAuthorizer())
            self.effort = effort

    shared = PresentAuthorizer(Costly(100))
    efforts = [shared.effort]
    for cost in (0, 50, 3):
        shared.use(Costly(cost))
        efforts.append(shared.effort)
    assert efforts == sorted(efforts)
