"""The file of SCRAM users: every mistake with its line, and changes while the broker runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher

from holdfast.config import ConfigError
from holdfast.identity.scram import UsersFile, Verifier, new_verifier

VERIFIER = new_verifier("pencil", 4096)
OTHER = new_verifier("eraser", 4096)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.scram"


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []
    observer = cast("ILogObserver", events.append)
    globalLogPublisher.addObserver(observer)
    yield events
    globalLogPublisher.removeObserver(observer)


def write(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    """Replace the file by a new one, as editors do."""
    new = path.with_name("new")
    new.write_bytes(text if isinstance(text, bytes) else text.encode())
    new.chmod(mode)
    return new.rename(path)


def problems(path: Path) -> list[tuple[int | None, str]]:
    with pytest.raises(ConfigError) as caught:
        UsersFile(path)
    assert {problem.file for problem in caught.value.problems} == {str(path)}
    return [(problem.line, problem.message) for problem in caught.value.problems]


def test_a_line_is_a_user_and_comments_are_none(path: Path) -> None:
    write(path, f"# users\n\nalice:{VERIFIER}\r\n  \t\n\u00e9 mile:{OTHER}  \n  # the end")
    assert UsersFile(path).users() == {"alice": VERIFIER, "\u00e9 mile": OTHER}


def test_a_name_is_prepared(path: Path) -> None:
    write(path, f"\u2168-\u00aa:{VERIFIER}\n")
    assert UsersFile(path).users() == {"IX-a": VERIFIER}


def test_a_byte_order_mark_is_no_part_of_the_first_line(path: Path) -> None:
    write(path, f"\ufeffalice:{VERIFIER}\n")
    assert UsersFile(path).users() == {"alice": VERIFIER}
    write(path, f"\ufeff# users\nalice:{VERIFIER}\n")
    assert UsersFile(path).users() == {"alice": VERIFIER}


@pytest.mark.parametrize("hidden", ["\u200b", "\u00ad", "\u2060", "\ufeff", "\u202e", "\u00a0", "\u3164"])
def test_a_name_with_an_invisible_character_is_refused_with_its_line(path: Path, hidden: str) -> None:
    write(path, f"# users\nal{hidden}ice:{VERIFIER}\n")
    [(line, message)] = problems(path)
    assert line == 2
    assert f"U+{ord(hidden):04X}" in message


def test_an_empty_file_has_no_users(path: Path) -> None:
    """No client is admitted then; it is no mistake."""
    assert UsersFile(write(path, "")).users() == {}


def test_all_mistakes_are_reported_with_their_lines(path: Path) -> None:
    write(
        path,
        f"a:{VERIFIER}\nnothing\nb:pencil\n".encode()
        + b"\xff:x\n"
        + f":{VERIFIER}\na:{OTHER}\nc:{str(VERIFIER).replace('4096', '1000')}\n\x1b[2J:{VERIFIER}\n".encode(),
    )
    found = problems(path)
    assert [line for line, _ in found] == [2, 3, 4, 5, 6, 7, 8]
    messages = [message for _, message in found]
    assert messages[0].startswith("found no SCRAM-SHA-256 verifier after the name")
    assert messages[2] == "this is not UTF-8; save the file in that encoding"
    assert messages[3].startswith("a user name has at least one character")
    assert messages[4] == "the user of line 1 again; allowed: one line for each user"
    assert messages[5] == "found 1000 iterations; allowed: 4096 to 10000000"
    assert messages[6] == "a user name has no control characters"
    assert "pencil" not in "".join(messages)


def test_two_ways_to_write_a_name_are_one_user(path: Path) -> None:
    write(path, f"\u00e9:{VERIFIER}\ne\u0301:{OTHER}\n")
    assert problems(path) == [(2, "the user of line 1 again; allowed: one line for each user")]


def test_a_missing_file_is_a_problem_with_the_command_that_creates_it(path: Path) -> None:
    assert problems(path) == [(None, "there is no such file; create it with: holdfast scram set FILE USERNAME")]


def test_a_folder_or_pipe_is_a_problem(path: Path) -> None:
    path.mkdir()
    assert problems(path) == [(None, "cannot be read: Is a directory")]
    path.rmdir()
    os.mkfifo(path)
    assert problems(path) == [(None, "cannot be read: this is not a regular file")]


def test_an_unreadable_file_is_a_problem(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, "")

    def denied(*_arguments: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", denied)  # the superuser, as whom tests may run, is never denied
    assert problems(path) == [(None, "cannot be read: Permission denied")]


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644, 0o666])
def test_a_file_that_others_may_read_or_write_is_refused(path: Path, mode: int) -> None:
    write(path, f"a:{VERIFIER}\n", mode)
    message = f"every user of this machine may read or write it; run: chmod o= {path}"
    assert problems(path) == [(None, message)]


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o660])
def test_a_file_for_its_owner_and_group_is_taken(path: Path, mode: int) -> None:
    assert UsersFile(write(path, "", mode)).users() == {}


def test_a_change_of_the_file_is_read(path: Path, logged: list[LogEvent]) -> None:
    file = UsersFile(write(path, f"a:{VERIFIER}\n"))
    first = file.users()
    assert file.users() is first
    write(path, f"a:{OTHER}\nb:{VERIFIER}\n")
    assert file.users() == {"a": OTHER, "b": VERIFIER}
    assert file.users() is file.users()
    assert first == {"a": VERIFIER}
    write(path, "")
    assert file.users() == {}
    assert [event["count"] for event in logged] == [2, 0]


@pytest.mark.parametrize("damage", ["broken", "gone", "open to others"])
def test_a_file_with_new_mistakes_changes_nothing_until_they_are_solved(
    path: Path, logged: list[LogEvent], damage: str
) -> None:
    """It admits nobody else. The log tells the first mistake once, with its line."""
    users: dict[str, Verifier] = {"a": VERIFIER}
    file = UsersFile(write(path, f"a:{VERIFIER}\n"))
    if damage == "broken":
        write(path, f"b:{OTHER}\nc\nd\n")
    elif damage == "gone":
        path.unlink()
    else:
        write(path, f"a:{VERIFIER}\nb:{OTHER}\n", 0o644)
    for _ in range(3):
        assert file.users() == users
    (event,) = logged
    assert event["log_level"].name == "error"
    problem = str(event["problem"])
    assert problem.startswith(f"{path}:2: found no SCRAM-SHA-256 verifier" if damage == "broken" else f"{path}: ")
    assert event["count"] == (2 if damage == "broken" else 1)
    write(path, f"b:{OTHER}\n")
    assert file.users() == {"b": OTHER}
