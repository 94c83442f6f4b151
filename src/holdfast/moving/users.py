"""Users with hashed passwords, taken from another broker: the lines of a password file, and what was left out."""

from __future__ import annotations

from pathlib import Path

from attrs import define, field

from holdfast.config.toml import ConfigError, ConfigProblem, display_name, read_regular, without_mark
from holdfast.identity.hashes import checked, checked_name
from holdfast.identity.user_files import InvalidUser, check_visible
from holdfast.moving.report import Report

#: bytes of the largest file of users: half a million of them
LARGEST = 64 * 1024 * 1024


@define
class Users:
    """The hashes by user. A user whose name or hash Holdfast cannot use is in the report instead."""

    hashes: dict[str, str] = field(factory=dict)

    def add(self, name: str, stored: str, origin: str, report: Report) -> bool:
        """Take a user, unless an earlier one has the name; return whether the broker can verify the password."""
        try:
            check_visible(name)
            checked_name(name)
            checked(stored)
        except InvalidUser as unusable:
            advice = f"left out: {unusable}; give the user another name or password with holdfast passwd add"
            report.missing(origin, f"user {name}", advice)
            return False
        if name in self.hashes:
            report.missing(origin, f"user {name}", "left out: an earlier line has this user; remove one of both")
            return False
        self.hashes[name] = stored
        return True

    def text(self) -> str:
        """Return the text of the password file."""
        return "".join(f"{name}:{stored}\n" for name, stored in self.hashes.items())


def read_hashes(path: Path, origin: str, keyword: str, report: Report) -> Users:
    """Return the users of a file with lines NAME:HASH, as mosquitto and VerneMQ have it.

    Raises ConfigError if the file cannot be read; ``origin`` and ``keyword`` tell which line names it.
    """
    users = Users()
    name = display_name(path)
    for number, line in enumerate(text_at(path, origin, keyword).split("\n"), 1):
        entry = line.strip(" \t\r")
        if not entry or entry.startswith("#"):
            continue
        username, _, stored = entry.partition(":")
        users.add(username, stored, f"{name}:{number}", report)
    return users


def text_at(path: Path, origin: str, keyword: str) -> str:
    """Return the text of a file that a line names. Raises ConfigError, which names the line."""
    try:
        content, _ = read_regular(path, LARGEST)
        return without_mark(content).decode()
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError:
        reason = "is not UTF-8"
    raise unusable_file(path, origin, keyword, reason)


def unusable_file(path: Path, origin: str, keyword: str, reason: str) -> ConfigError:
    """Return the error of a line that names a file which cannot be used."""
    file, _, line = origin.rpartition(":")
    message = f"{path}: {reason}; allowed: a file that can be read here; run this on the old broker's machine, as root"
    return ConfigError([ConfigProblem(file or origin, int(line) if line.isdigit() else None, keyword, message)])
