"""The file of the operators' bans in the data directory: one JSON object in each line, with the keys of the API."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.auth.failures.ban import BadBan, Ban, ban_of
from holdfast.config.problems import ConfigError, ConfigProblem
from holdfast.config.toml.file import without_mark

FILE_NAME = "bans.jsonl"

#: bytes of the longest file: more than the most bans have
_LONGEST = 64 << 20


def fields_of(ban: Ban) -> dict[str, Any]:
    """Return a ban with the names of the API; ``until`` is "infinity" for a ban without an end."""
    return {
        "as": ban.kind.value,
        "who": ban.who,
        "by": ban.by,
        "reason": ban.reason,
        "at": ban.at,
        "until": "infinity" if ban.until is None else ban.until,
    }


def ban_from(fields: object) -> Ban:
    """Return the ban with these fields. Raises BadBan."""
    if not isinstance(fields, dict):
        raise BadBan("a ban is a JSON object")
    texts = [fields.get(name, "") for name in ("as", "who", "by", "reason")]
    at, until = fields.get("at", 0), fields.get("until", "infinity")
    if not all(isinstance(text, str) for text in texts) or type(at) is not int:
        raise BadBan("as, who, by and reason are strings, and at is a whole number")
    if until != "infinity" and type(until) is not int:
        raise BadBan('until is a whole number of seconds since 1970, or "infinity"')
    kind, who, by, reason = texts
    return ban_of(kind, who, by=by, reason=reason, at=at, until=None if until == "infinity" else until)


def load_bans(folder: Path) -> list[Ban]:
    """Return the stored bans. Raises ConfigError: a broker that ignored a ban would let the banned in."""
    path = folder / FILE_NAME
    bans = []
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _problem(path, None, f"cannot be read: {error.strerror}") from None
    if len(content) > _LONGEST:
        raise _problem(path, None, f"has more than {_LONGEST} bytes")
    for number, line in enumerate(without_mark(content).splitlines(), 1):
        try:
            bans.append(ban_from(json.loads(line)))
        except (ValueError, RecursionError) as error:  # BadBan, and errors of JSON and UTF-8
            raise _problem(path, number, f"is not a ban: {error}; correct or remove this line") from None
    return bans


def store_bans(folder: Path, bans: Iterable[Ban]) -> None:
    """Replace the stored bans, in a file for this user only: durable when this returns.

    Raises OSError; then nothing has changed.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=folder)  # mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            for ban in bans:
                file.write(json.dumps(fields_of(ban)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / FILE_NAME)
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)  # the folder holds the rename
    finally:
        os.close(directory)


def _problem(path: Path, line: int | None, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(str(path), line, "", message)])
