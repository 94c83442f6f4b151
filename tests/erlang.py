"""Writes what Erlang writes: terms, backups of Mnesia and the archives that EMQX makes of them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import md5
from io import BytesIO
from pathlib import Path
from tarfile import TarFile, TarInfo
from typing import Any

from holdfast.retained.formats.erlang_terms import Atom

EXPORT = "emqx-export-2026-11-21-10-00-00.000"
HEADER = (Atom("log_header"), Atom("backup_log"), b"1.2", b"4.21", Atom("emqx@127.0.0.1"), (1763, 719200, 0))


def term(value: Any) -> bytes:
    """Return a term in the external format."""
    return b"\x83" + _part(value)


def _part(value: Any) -> bytes:
    match value:
        case Atom():
            text = value.encode()
            return struct.pack(">BB", 119, len(text)) + text
        case bytes():
            return struct.pack(">BI", 109, len(value)) + value
        case float():
            return struct.pack(">Bd", 70, value)
        case int():
            return _number(value)
        case tuple():
            head = struct.pack(">BB", 104, len(value)) if len(value) < 256 else struct.pack(">BI", 105, len(value))
            return head + b"".join(map(_part, value))
        case list():
            return struct.pack(">BI", 108, len(value)) + b"".join(map(_part, value)) + b"\x6a" if value else b"\x6a"
        case dict():
            return struct.pack(">BI", 116, len(value)) + b"".join(
                _part(name) + _part(each) for name, each in value.items()
            )
        case _:
            raise TypeError(value)


def _number(value: int) -> bytes:
    if 0 <= value < 256:
        return struct.pack(">BB", 97, value)
    if -(2**31) <= value < 2**31:
        return struct.pack(">Bi", 98, value)
    digits = abs(value).to_bytes((abs(value).bit_length() + 7) // 8, "little")
    return struct.pack(">BBB", 110, len(digits), value < 0) + digits


def disk_log(*terms: Any) -> bytes:
    """Return a log of terms."""
    found = [b"\x01\x02\x03\x04\x63\x58\x4d\x0b"]
    for each in terms:
        data = term(each)
        size = struct.pack(">I", len(data))
        digest = md5(size, usedforsecurity=False).digest() if len(data) >= 65_528 else b""
        found.append(size + struct.pack(">I", 1_649_888_321) + digest + data)
    return b"".join(found)


def backup(table: str, *records: Any) -> bytes:
    """Return a backup of a table."""
    return disk_log(HEADER, (Atom("schema"), Atom(table), [(Atom("attributes"), [Atom("topic")])]), *records)


def archive(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write an archive with these files below the folder of the export."""
    with TarFile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = TarInfo(f"{EXPORT}/{name}")
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    return path
