"""A password file as a method: what a login costs, and what a change of the file means for its users."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.config import ConfigError
from holdfast.identity.hashes import HashParameters, new_hash
from holdfast.identity.interfaces import Answer, Credentials, Denied, Principal
from holdfast.identity.passwords import COLLECTING_SECONDS, LOOK_INTERVAL
from holdfast.wire.reasons import ReasonCode
from tests.identity.passwords.doubles import CHEAP, Passwords
from tests.logs import logged

WRONG, BUSY = ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.SERVER_BUSY


def old_hash(password: str) -> str:
    """Return a hash of mosquitto 1.x."""
    digest = hashlib.sha512(password.encode() + b"salt").digest()
    return f"$6${b64encode(b'salt').decode()}${b64encode(digest).decode()}"


@pytest.fixture
def passwords(tmp_path: Path) -> Passwords:
    return Passwords(tmp_path / "passwords", Clock(), alice="wonderland", bob="builder")


def login(passwords: Passwords, username: str | None, password: bytes | None) -> Answer:
    """Return the answer of the whole chain, which must be there."""
    answer = passwords.chains().authenticate(Credentials("c", username, password, "test", 5))
    if not isinstance(answer, Deferred):
        return answer
    found: list[Answer] = []
    answer.addCallback(found.append)
    return found[0]


def is_admitted(passwords: Passwords, username: str, password: str) -> bool:
    answer = login(passwords, username, password.encode())
    assert isinstance(answer, Principal) or answer.reason is WRONG
    return isinstance(answer, Principal)


def test_a_user_with_the_password_is_admitted_by_name_and_method(passwords: Passwords) -> None:
    answer = login(passwords, "alice", b"wonderland")
    assert isinstance(answer, Principal)
    assert (answer.username, answer.method, answer.groups) == ("alice", "passwords", frozenset())
    assert not is_admitted(passwords, "alice", "builder")
    assert not is_admitted(passwords, "bob", "wonderland")


def test_a_client_that_returns_costs_no_hash_but_a_wrong_password_always_one(passwords: Passwords) -> None:
    for _ in range(3):
        assert is_admitted(passwords, "alice", "wonderland")
    assert passwords.hashing.count == 1
    for _ in range(3):
        assert not is_admitted(passwords, "alice", "other")
    assert passwords.hashing.count == 4
    assert is_admitted(passwords, "alice", "wonderland")
    assert passwords.hashing.count == 4


@pytest.mark.parametrize("username", ["alice", "nobody", "Alice", "alice ", "a" * 60_000])
@pytest.mark.parametrize("password", [b"", b"wrong", b"builder", b"x" * 60_000])
def test_the_answer_and_its_cost_do_not_tell_whether_a_user_exists(
    passwords: Passwords, username: str, password: bytes
) -> None:
    answer = login(passwords, username, password)
    assert isinstance(answer, Denied)
    assert (answer.reason, passwords.hashing.count) == (WRONG, 1)


@pytest.mark.parametrize("username", ["alice", "nobody"])
def test_without_a_password_nobody_costs_a_hash(passwords: Passwords, username: str) -> None:
    answer = login(passwords, username, None)
    assert isinstance(answer, Denied)
    assert (answer.reason, passwords.hashing.count) == (WRONG, 0)


def test_an_empty_file_admits_nobody_and_takes_the_usual_time(tmp_path: Path) -> None:
    (tmp_path / "passwords").touch(0o600)
    passwords = Passwords(tmp_path / "passwords", Clock())
    assert not is_admitted(passwords, "alice", "wonderland")
    assert passwords.hashing.count == 1


def test_beyond_the_line_of_hashes_clients_are_refused_as_busy_but_known_ones_are_not(passwords: Passwords) -> None:
    assert is_admitted(passwords, "alice", "wonderland")
    passwords.hashing.busy = True
    assert is_admitted(passwords, "alice", "wonderland")
    for username in ("bob", "nobody"):
        answer = login(passwords, username, b"builder")
        assert isinstance(answer, Denied)
        assert answer.reason is BUSY


# --- changes of the file


def test_a_login_sees_the_file_as_it_is(passwords: Passwords) -> None:
    passwords.write(carol=new_hash(b"new", CHEAP))
    assert is_admitted(passwords, "carol", "new")
    assert not is_admitted(passwords, "alice", "wonderland")


def test_logins_wait_while_the_file_is_read(passwords: Passwords) -> None:
    reading: list[Callable[[], None]] = []

    def in_thread(work: Callable[..., object], *arguments: object) -> Deferred[object]:
        answer: Deferred[object] = Deferred()
        reading.append(lambda: answer.callback(work(*arguments)))
        return answer

    passwords.file._in_thread = in_thread
    passwords.write(carol=new_hash(b"new", CHEAP))
    found: list[object] = []
    for _ in range(3):
        answer = passwords.chains().authenticate(Credentials("c", "carol", b"new", "test", 5))
        assert isinstance(answer, Deferred)
        answer.addCallback(found.append)
    (read,) = reading
    assert not found
    read()
    assert len(found) == 3


def test_a_client_that_leaves_while_the_file_is_read_hides_no_change(passwords: Passwords) -> None:
    """Its login is cancelled. A removed user, for example, must not go on so."""
    reading: list[Callable[[], None]] = []

    def in_thread(work: Callable[..., object], *arguments: object) -> Deferred[object]:
        answer: Deferred[object] = Deferred()
        reading.append(lambda: answer.callback(work(*arguments)))
        return answer

    passwords.file._in_thread = in_thread
    passwords.write(bob=new_hash(b"builder", CHEAP))
    leaving = passwords.chains().authenticate(Credentials("c", "alice", b"wonderland", "test", 5))
    assert isinstance(leaving, Deferred)
    leaving.cancel()
    (read,) = reading
    read()
    assert passwords.hashing.count == 0
    assert not is_admitted(passwords, "alice", "wonderland")


def test_a_slow_reading_does_not_undo_a_reload(passwords: Passwords) -> None:
    slow: list[Callable[[], None]] = []

    def in_thread(work: Callable[..., object], *arguments: object) -> Deferred[object]:
        answer: Deferred[object] = Deferred()
        found = work(*arguments)
        slow.append(lambda: answer.callback(found))
        return answer

    passwords.file._in_thread = in_thread
    passwords.write(alice=new_hash(b"wonderland", CHEAP))
    waiting = passwords.chains().authenticate(Credentials("c", "alice", b"wonderland", "test", 5))
    passwords.write(bob=new_hash(b"builder", CHEAP))
    passwords.file.prepare(CHEAP, True)()
    (deliver,) = slow
    deliver()
    assert isinstance(waiting, Deferred)
    found: list[Answer] = []
    waiting.addCallback(found.append)
    assert isinstance(found[0], Denied)
    assert not is_admitted(passwords, "alice", "wonderland")


def test_removed_users_and_new_passwords_are_revoked(passwords: Passwords) -> None:
    revoked: list[list[str]] = []
    people = [Principal("c", name, method="passwords") for name in ("alice", "bob", "carol")]
    others = [Principal("c", "alice", method="tokens"), Principal("c", None)]

    def note(matching: Callable[[Principal], bool]) -> None:
        revoked.append([str(one.username) for one in people if matching(one)])
        assert not any(map(matching, others))

    passwords.file.on_revoked(note)
    alice = passwords.file._users["alice"]
    passwords.file.startService()
    passwords.write(alice=alice, bob=new_hash(b"builder", CHEAP), carol=alice)
    passwords.clock.advance(LOOK_INTERVAL)
    assert revoked == [["bob"]]
    passwords.write(bob=alice)
    passwords.clock.advance(LOOK_INTERVAL)
    assert revoked == [["bob"], ["alice", "bob", "carol"]]
    passwords.clock.advance(LOOK_INTERVAL)
    passwords.file.stopService()
    assert len(revoked) == 2
    assert not passwords.clock.getDelayedCalls()


@pytest.mark.parametrize("content", ["alice\n", "alice:\n", "alice:plain\n", ":$6$c2FsdA==$abc\n", "alice:$7$1$a$b\n"])
def test_a_file_with_a_malformed_line_changes_nothing(passwords: Passwords, content: str) -> None:
    """Nobody becomes a user without a password (CVE-2018-12551)."""
    passwords.path.write_text(content)
    with logged() as log:
        for _ in range(3):
            assert not is_admitted(passwords, "alice", "")
            assert is_admitted(passwords, "bob", "builder")
    assert len(log) == 1
    assert str(log[0]["problem"]).startswith(f"{passwords.path}:1: ")
    assert "plain" not in str(log[0]["problem"])


def test_a_broker_with_a_malformed_file_does_not_start(passwords: Passwords) -> None:
    good = passwords.path.read_text()
    passwords.path.write_text(f"# people\n{good}mallory\n{good}")
    with pytest.raises(ConfigError) as caught:
        Passwords(passwords.path, Clock())
    assert [problem.line for problem in caught.value.problems] == [4, 5, 6]
    assert "found no hash" in caught.value.problems[0].message
    assert caught.value.problems[1].message == "the user of line 2 again; allowed: one line for each user"


@pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o640, False), (0o644, False), (0o606, True)])
def test_a_file_that_others_may_write_is_refused_and_one_that_they_may_read_is_told(
    passwords: Passwords, mode: int, refused: bool
) -> None:
    """mosquitto_passwd makes files that everybody may read."""
    passwords.path.chmod(mode)
    if refused:
        with pytest.raises(ConfigError, match="every user of this machine may write it; run: chmod o= "):
            Passwords(passwords.path, Clock())
        return
    with logged() as log:
        Passwords(passwords.path, Clock())
    assert ["may read the hashes" in str(event["log_format"]) for event in log] == ([True] if mode == 0o644 else [])


# --- better hashes


@pytest.fixture
def old(tmp_path: Path) -> Passwords:
    """Return a file of mosquitto 1.x, and revoke nobody in it."""
    path = tmp_path / "passwords"
    path.write_text(f"# from mosquitto\nalice:{old_hash('wonderland')}\nbob:{old_hash('builder')}\n")
    passwords = Passwords(path, Clock())

    def nobody(_matching: object) -> None:
        raise AssertionError("a better hash revokes nobody")

    passwords.file.on_revoked(nobody)
    passwords.file.startService()
    return passwords


def test_an_old_hash_is_replaced_after_a_login(old: Passwords) -> None:
    for _ in range(3):
        assert is_admitted(old, "alice", "wonderland")
    assert old.hashing.count == 2  # one to verify, one for the new hash
    assert "argon2id" not in old.path.read_text()
    old.clock.advance(COLLECTING_SECONDS)
    comment, alice, bob = old.path.read_text().splitlines()
    assert comment == "# from mosquitto"
    assert alice.startswith("alice:$argon2id$v=19$m=8,t=1,p=1$")
    assert bob == f"bob:{old_hash('builder')}"
    assert is_admitted(old, "alice", "wonderland")
    assert old.hashing.count == 2
    assert not is_admitted(old, "alice", "other")
    old.file.stopService()


def test_a_wrong_password_replaces_nothing(old: Passwords) -> None:
    assert not is_admitted(old, "alice", "other")
    old.clock.advance(COLLECTING_SECONDS)
    assert "argon2id" not in old.path.read_text()
    old.file.stopService()


def test_hashes_that_wait_are_written_at_the_end(old: Passwords) -> None:
    is_admitted(old, "alice", "wonderland")
    is_admitted(old, "bob", "builder")
    old.file.stopService()
    assert old.path.read_text().count("argon2id") == 2
    assert not old.clock.getDelayedCalls()


def test_a_password_that_an_operator_changes_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"alice:{old_hash('wonderland')}\n")
    passwords = Passwords(path, Clock())
    passwords.file.startService()
    assert is_admitted(passwords, "alice", "wonderland")
    passwords.write(alice=new_hash(b"changed", CHEAP))
    passwords.clock.advance(COLLECTING_SECONDS)
    assert is_admitted(passwords, "alice", "changed")
    assert not is_admitted(passwords, "alice", "wonderland")
    passwords.file.stopService()


def test_without_the_right_to_write_the_broker_goes_on_and_says_so_once(
    old: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(**_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("holdfast.identity.user_files.tempfile.mkstemp", denied)
    with logged() as log:
        for _ in range(2):
            for user, password in (("alice", "wonderland"), ("bob", "builder")):
                assert is_admitted(old, user, password)
            old.clock.advance(COLLECTING_SECONDS)
    assert len(log) == 1
    assert "cannot be written: Permission denied" in str(log[0]["error"])
    old.file.stopService()


def test_hashes_stay_where_the_operator_wants_it(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"alice:{old_hash('wonderland')}\n")
    passwords = Passwords(path, Clock(), rehash=False)
    passwords.file.startService()
    assert is_admitted(passwords, "alice", "wonderland")
    passwords.clock.advance(COLLECTING_SECONDS)
    assert path.read_text() == f"alice:{old_hash('wonderland')}\n"
    passwords.file.stopService()


def test_a_reload_with_more_work_for_a_hash_replaces_the_present_ones(passwords: Passwords) -> None:
    """``memory`` and ``passes`` count from the reload on; the next login of each user makes a hash with them."""
    passwords.file.startService()
    passwords.file.prepare(HashParameters(memory=16, passes=2), True)()
    assert is_admitted(passwords, "alice", "wonderland")
    assert passwords.hashing.count == 2  # one to verify, one for the new hash
    passwords.clock.advance(COLLECTING_SECONDS)
    alice, bob = passwords.path.read_text().splitlines()
    assert alice.startswith("alice:$argon2id$v=19$m=16,t=2,p=1$")
    assert bob.startswith("bob:$argon2id$v=19$m=8,t=1,p=1$")
    passwords.file.stopService()
