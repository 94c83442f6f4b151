"""Checkers of twisted.cred as an authentication method."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.cred.checkers import ANONYMOUS, ICredentialsChecker
from twisted.cred.credentials import IUsernamePassword, UsernamePassword
from twisted.cred.error import LoginDenied, UnauthorizedLogin
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from holdfast.identity.cred_checkers import MOST_CALLS_WAITING, CheckerMethod, UnusableChecker, blocks, checker_of
from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, Denied, Verdict
from holdfast.wire.reasons import ReasonCode


@implementer(ICredentialsChecker)
class Checker:
    """Answers as the test says, and notes what it was asked."""

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.asked: list[tuple[bytes, bytes]] = []

    def requestAvatarId(self, credentials: UsernamePassword) -> Any:
        self.asked.append((credentials.username, credentials.password))
        return self.answer()


def credentials(username: str | None = "jürgen", password: bytes | None = b"\xffx") -> Credentials:
    return Credentials("c", username, password, "tcp", 4)


def verdict(method: CheckerMethod, said: Credentials | None = None) -> Verdict:
    found = method.judge(said or credentials())
    if not isinstance(found, Deferred):
        return found
    verdicts: list[Any] = []
    found.addBoth(verdicts.append)
    (outcome,) = verdicts
    return outcome  # type: ignore[no-any-return]


@pytest.mark.parametrize("avatar", ["jürgen", "jürgen".encode()])
@pytest.mark.parametrize("later", [False, True])
def test_the_avatar_is_the_user_name(avatar: object, later: bool) -> None:
    checker = Checker(lambda: succeed(avatar) if later else avatar)
    assert verdict(CheckerMethod(checker)) == Accepted("jürgen")
    assert checker.asked == [("jürgen".encode(), b"\xffx")]


@pytest.mark.parametrize("error", [UnauthorizedLogin(), LoginDenied(), UnicodeError()])
@pytest.mark.parametrize("later", [False, True])
def test_a_refused_login_is_denied(error: Exception, later: bool) -> None:
    def refuse() -> Any:
        if later:
            return fail(error)
        raise error

    found = verdict(CheckerMethod(Checker(refuse)))
    assert isinstance(found, Denied)
    assert found.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize("answer", [lambda: fail(OSError("away")), lambda: None, lambda: 5])
def test_another_failure_is_the_checkers_own(answer: Callable[[], Any]) -> None:
    """The chain logs it, and refuses: Server unavailable."""
    found: Any = verdict(CheckerMethod(Checker(answer)))
    assert found.check(OSError, TypeError)


def test_an_anonymous_avatar_is_nobody() -> None:
    assert verdict(CheckerMethod(Checker(lambda: ANONYMOUS))) is IGNORED


@pytest.mark.parametrize(("username", "password"), [(None, None), ("a", None), ("a", b""), ("", b"x"), (None, b"x")])
def test_without_user_name_and_password_nothing_is_asked(username: str | None, password: bytes | None) -> None:
    checker = Checker(lambda: b"a")
    assert verdict(CheckerMethod(checker), credentials(username, password)) is IGNORED
    assert not checker.asked


def test_logins_that_wait_are_bounded() -> None:
    answers: list[Deferred[Any]] = []

    def wait() -> Deferred[Any]:
        answers.append(Deferred())
        return answers[-1]

    method = CheckerMethod(Checker(wait))
    for _ in range(MOST_CALLS_WAITING):
        assert isinstance(method.judge(credentials()), Deferred)
    busy = method.judge(credentials())
    assert isinstance(busy, Denied)
    assert busy.reason is ReasonCode.SERVER_BUSY
    answers[0].callback(b"a")
    assert isinstance(method.judge(credentials()), Deferred)


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.write_text("alice:secret\nempty:\n")
    return path


def test_a_file_of_passwords(passwords: Path) -> None:
    checker = checker_of(f"file:{passwords}")
    assert blocks(checker)
    method = CheckerMethod(checker)
    assert verdict(method, credentials("alice", b"secret")) == Accepted("alice")
    for username, password in (("alice", b"other"), ("alice", b"secre"), ("bob", b"secret"), ("empty", b" ")):
        assert isinstance(verdict(method, credentials(username, password)), Denied)


def test_a_file_that_is_gone_is_no_failed_login(passwords: Path) -> None:
    method = CheckerMethod(checker_of(f"file:{passwords}"))
    passwords.unlink()
    found: Any = verdict(method, credentials("alice", b"secret"))
    assert found.check(UnusableChecker)


@pytest.mark.parametrize(
    ("description", "why"),
    [
        ("nonsense:x", "there is no checker nonsense; found here: .*file"),
        ("file:/nonexistent/file", "cannot be read"),
        ("anonymous", "takes no user name with a password"),
        ("memory:alice", "does not take these arguments"),
    ],
)
def test_a_description_that_cannot_be_used(description: str, why: str) -> None:
    with pytest.raises(UnusableChecker, match=why):
        checker_of(description)
