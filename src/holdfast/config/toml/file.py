"""Reading a TOML file: its values and the lines of its keys, or one clear problem."""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from holdfast.config.problems import ConfigError, ConfigProblem, FileUnreadable
from holdfast.config.toml.locations import ConfigOrigin, locate

#: Bytes: far more than any configuration. A limit also ends the reading of a device such as /dev/zero.
LARGEST = 1024 * 1024

_AT_LINE = re.compile(r"(.*) \(at line ([0-9]+), column ([0-9]+)\)", re.DOTALL)
_AT_END = re.compile(r"(.*) \(at end of document\)", re.DOTALL)

#: The beginnings of tomllib's messages, and clearer words for the operator.
_CLEARER = {
    "Cannot overwrite a value": "this key has a value already: it is given twice, or is both a value and a table",
    "Invalid value": "no value follows the equals sign; text stands in quotes, durations and sizes too",
    "Invalid statement": "neither a [table] nor a key = value",
    "Cannot declare": "this table is there already",
    "Cannot mutate immutable namespace": "this table is complete already and cannot be added to",
    "Unescaped '\\' in a string": "a backslash in a string is written \\\\ (or use 'single quotes')",
}


def display_name(path: Path) -> str:
    """Return the path for messages, with replacements for bytes that are not UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def read_regular(path: Path, largest: int = -1) -> tuple[bytes, int]:
    """Return the content of a regular file and its mode. Raises OSError.

    With ``largest``, it is at most one byte more than that. A pipe without a writer is refused, and not waited for.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "this is not a regular file")
        return file.read(largest + 1 if largest >= 0 else -1), mode


def without_mark(content: bytes) -> bytes:
    """Return the content of a text file without the byte order mark that some editors put before it."""
    return content.removeprefix(codecs.BOM_UTF8)


def read(path: Path, largest: int = LARGEST) -> tuple[dict[str, Any], ConfigOrigin]:
    """Return the values in a TOML file of at most ``largest`` bytes, and their lines.

    Raises ConfigError with a single problem; FileUnreadable if there is no content.
    """
    name = display_name(path)
    text = text_of(path, largest)
    try:
        values = tomllib.loads(text)
        return values, ConfigOrigin(name, locate(text))
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(name, text, str(error)) from None
    except ValueError as error:  # an integer with too many digits for Python
        raise _error(name, None, f"a value cannot be read: {error}") from None
    except RecursionError:
        raise _error(name, None, "arrays or inline tables are nested too deeply") from None


def text_of(path: Path, largest: int = LARGEST) -> str:
    """Return the text of a file of at most ``largest`` bytes. Raises as :func:`read` does."""
    name = display_name(path)
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except FileNotFoundError:
        raise _unreadable(name, "there is no such file") from None
    except IsADirectoryError:
        raise _unreadable(name, "this is a directory; give the path of a file") from None
    except OSError as error:
        raise _unreadable(name, f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise _unreadable(name, "this is not the path of a file: it has a null character") from None
    if len(content) > largest:
        raise _error(name, None, f"this has more than {largest} bytes and is hardly a configuration file")
    try:
        return without_mark(content).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _error(name, line, "the text is not UTF-8; save the file in that encoding") from None


def _syntax_error(name: str, text: str, message: str) -> ConfigError:
    at_line, at_end = _AT_LINE.fullmatch(message), _AT_END.fullmatch(message)
    if at_line is not None:
        problem, line, position = at_line[1], int(at_line[2]), f" (column {at_line[3]})"
    elif at_end is not None:
        problem, line, position = at_end[1], text.rstrip().count("\n") + 1, " (at the end of the file)"
    else:
        return _error(name, None, f"not TOML: {message}")
    clearer = next((words for start, words in _CLEARER.items() if problem.startswith(start)), problem)
    return _error(name, line, f"not TOML: {clearer}{position}")


def _error(name: str, line: int | None, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(name, line, "", message)])


def _unreadable(name: str, message: str) -> FileUnreadable:
    return FileUnreadable([ConfigProblem(name, None, "", message)])
