"""``[[hooks]]``: what a hook needs, and what it may not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import ConfigError, load

GOOD = 'name = "a"\nurl = "https://a.example/x"\nalarms = true\n'


def problems(folder: Path, text: str) -> str:
    file = folder / "h.toml"
    file.write_text(text)
    try:
        load(file)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('url = "https://a.example"\nalarms = true', "hooks.1.name: is missing"),
        ('name = "a b"\nurl = "https://a.example"\nalarms = true', "1 to 64 letters"),
        ('name = "a"\nalarms = true', "one of url and secret_url"),
        (f'{GOOD}secret_url = "file:u"', "one of url and secret_url"),
        ('name = "a"\nurl = "http://a.example"\nalarms = true', "insecure = true"),
        ('name = "a"\nurl = "https://u:p@a.example"\nalarms = true', "before the host"),
        ('name = "a"\nurl = "https://a.example"', "the hook has no events"),
        (f'{GOOD}retained = ["a/#/b"]', "stands alone"),
        (f'{GOOD}retained = ["$share/g/a"]', "shared"),
        (f"{GOOD}retained = 7", "a list of Topic Filters"),
        (f'{GOOD}format = "xml"', '"events"'),
        (f"{GOOD}batch = 0", "1"),
        (f'{GOOD}secret = "s3cret"', "file:PATH"),
        (f"{GOOD}[[hooks]]\n{GOOD}", 'another hook is named "a"'),
    ],
)
def test_a_bad_hook_is_refused_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    """A secret in the place of its place is never shown."""
    told = problems(tmp_path, f"[[hooks]]\n{text}\n")
    assert says in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    "text",
    [
        GOOD, f'{GOOD}retained = ["#", "$sparkplug/#"]\nclients = true\nformat = "text"\nbatch = 1\nretry_for = "7d"',
        'name = "a"\nurl = "http://localhost:1/x"\ninsecure = true\nalarms = true',
        'name = "a"\nsecret_url = "env:URL"\nsecret = "env:KEY"\nalarms = true',
    ],
)  # fmt: skip
def test_these_are_allowed(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, f"[[hooks]]\n{text}\n") == ""
