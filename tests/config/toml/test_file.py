"""Unreadable files: one clear problem each, with the line if there is one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import ConfigError, load
from holdfast.config.toml import LARGEST
from tests.config.conftest import Problems


def message_for(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert message_for(path) == f"{path}: there is no such file"


def test_a_directory(tmp_path: Path) -> None:
    assert message_for(tmp_path) == f"{tmp_path}: this is a directory; give the path of a file"


def test_a_file_that_may_not_be_read(write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("")

    def reject(*arguments: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", reject)
    assert message_for(path) == f"{path}: cannot be read: Permission denied"


def test_a_path_with_a_null_character() -> None:
    assert "null character" in message_for(Path("holdfast\0.toml"))


def test_a_file_that_is_not_utf_8_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b"[node]\n# caf\xe9\n")
    assert message_for(path) == f"{path}:2: the text is not UTF-8; save the file in that encoding"


def test_a_file_name_that_is_not_utf_8_can_be_reported(tmp_path: Path) -> None:
    assert message_for(tmp_path / "caf\udce9.toml") == f"{tmp_path}/caf\ufffd.toml: there is no such file"


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbf[node]\nid = 7\n")
    assert load(path).node.id == 7


def test_a_file_that_is_too_large(write: Callable[[str], Path]) -> None:
    assert "hardly a configuration file" in message_for(write("#" * (LARGEST + 1)))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[node]\nid = 1\nid = 2\n", 3, "this key has a value already"),
        ("[node]\nid = \n", 2, "no value follows the equals sign"),
        ("[mqtt]\nidle_timeout = 15s\n", 2, "Expected newline or end of document"),
        ("[mqtt]\nmax_packet_size = MB\n", 2, "text stands in quotes"),
        ("[node]\n[node]\n", 2, "this table is there already"),
        ("node = {}\n[node]\n", 2, "this table is there already"),
        ("a = {}\na.b = 1\n", 2, "this table is complete already"),
        ("[node\n", 1, "Expected ']'"),
        ("\n!\n", 2, "neither a [table] nor a key = value"),
        ('[node]\ndata_dir = "C:\\data"\n', 2, "a backslash in a string is written \\\\"),
        ('[node]\ndata_dir = "x\n', 2, "Illegal character"),
        ("[node]\nid = [\n\n", 2, "at the end of the file"),
    ],
)
def test_a_syntax_error_has_its_line(problems_of: Callable[..., Problems], text: str, line: int, message: str) -> None:
    [(found_line, key, found)] = problems_of(text)
    assert (found_line, key) == (line, "")
    assert found.startswith("not TOML: ")
    assert message in found


def test_an_integer_of_too_many_digits(problems_of: Callable[..., Problems]) -> None:
    [(line, key, message)] = problems_of(f"a = {'1' * 5000}")
    assert (line, key) == (None, "")
    assert "a value cannot be read" in message


def test_nesting_that_is_too_deep(problems_of: Callable[..., Problems]) -> None:
    [(line, key, message)] = problems_of(f"a = {'[' * 5000}{']' * 5000}")
    assert (line, key, message) == (None, "", "arrays or inline tables are nested too deeply")


def test_a_syntax_error_without_a_line_is_reported_too(
    problems_of: Callable[..., Problems], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(text: str) -> None:
        raise tomllib.TOMLDecodeError("beyond words")

    monkeypatch.setattr(tomllib, "loads", reject)
    assert problems_of("") == [(None, "", "not TOML: beyond words")]
