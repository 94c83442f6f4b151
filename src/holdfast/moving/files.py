"""The files that a move writes: their text, and writing them into a folder that only its owner can read.

How it works. The files are made in memory, and are compared with those in the folder before the first one is written.
A file with the same content stays as it is, so a second run changes nothing. A file with other content is never
replaced without the operator's word: the broker and its operator may have changed it since. Each file is written beside
its place and then renamed, so a reader sees the old file or the new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import define, field, frozen

from holdfast.config.toml import dotted, quoted

#: a value of a table, as TOML has it
Value = bool | int | str | list[str]


@define
class Table:
    """A table of a TOML file. ``path`` is its header, empty for none. ``is_element``: one of several, ``[[path]]``."""

    path: tuple[str, ...]
    values: dict[str, Value] = field(factory=dict)
    remarks: dict[str, str] = field(factory=dict)  #: by key; "" is for the table
    is_element: bool = False


def toml_text(heading: Iterable[str], tables: Iterable[Table]) -> str:
    """Return the text of a TOML file. The heading stands in comments before it."""
    lines = [f"# {_in_line(line)}".rstrip() for line in heading]
    for table in tables:
        lines.append("")
        if table.path:
            header = dotted(table.path)
            lines.append(f"[[{header}]]" if table.is_element else f"[{header}]")
        if "" in table.remarks:
            lines[-1] += f"  # {_in_line(table.remarks[''])}"
        for key, value in table.values.items():
            remark = f"  # {_in_line(table.remarks[key])}" if key in table.remarks else ""
            lines.append(f"{dotted([key])} = {_value(value)}{remark}")
    return "\n".join(lines) + "\n"


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return quoted(value)
        case _:
            return f"[{', '.join(map(quoted, value))}]"


def _in_line(text: str) -> str:
    """Return a text for a comment: TOML allows no control characters there."""
    return "".join(each if each.isprintable() else "?" for each in text)


@frozen
class Difference:
    """A file of the folder that has other content. ``line`` is the first line that differs, from 1."""

    name: str
    line: int


class Differs(Exception):
    """Files of the folder have other content. Nothing was written."""

    def __init__(self, folder: Path, differences: list[Difference]) -> None:
        self.differences = differences
        listed = ", ".join(f"{each.name} (from line {each.line})" for each in differences)
        super().__init__(f"{folder}: other content is there already: {listed}")


def write_all(folder: Path, files: Mapping[str, str], *, replaces: bool) -> list[str]:
    """Write files with mode 0600 into a folder with mode 0700, and return the names of those that were not there so.

    Raises Differs, before anything is written, unless the caller ``replaces`` other content; and OSError.
    """
    changed = []
    differences = []
    for name, text in files.items():
        present = _content(folder / name)
        if present == text.encode():
            continue
        changed.append(name)
        if present is not None:
            differences.append(Difference(name, _first_difference(present, text.encode())))
    if differences and not replaces:
        raise Differs(folder, differences)
    if changed:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in changed:
            _write(folder / name, files[name].encode())
        _sync(folder)
    return changed


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _first_difference(before: bytes, after: bytes) -> int:
    old, new = before.split(b"\n"), after.split(b"\n")
    pairs = zip(old, new, strict=False)
    return next((number for number, (one, other) in enumerate(pairs, 1) if one != other), min(len(old), len(new)) + 1)


def _write(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
