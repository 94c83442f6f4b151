"""A database's URL is shown without its secrets."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.sections.storage import without_password
from holdfast.storage.database import Durability
from holdfast.storage.location import file_of, parsed, shown
from holdfast.storage.maintenance import database_at

URLS = [
    "postgresql+psycopg://u:secret@h:5432/d?host=%2Ftmp",
    "postgresql+psycopg://u@h/d?password=secret",
    "postgresql+psycopg://u@h/d?sslmode=verify-full&sslpassword=secret&connect_timeout=5",
    "postgresql+psycopg:///d?user=u&password=se%26secret",
]


@pytest.mark.parametrize("url", URLS)
def test_no_password_is_shown(url: str) -> None:
    """This includes a password among the parameters, which libpq accepts too."""
    for text in (shown(url), without_password(url), database_at(url, Durability.FULL).location):
        assert "secret" not in text
        assert text.startswith("postgresql+psycopg://")


def test_all_else_is_shown() -> None:
    url = "postgresql+psycopg://u@h:5432/d?connect_timeout=5"
    assert shown(url) == without_password(url) == url


@given(st.text(st.sampled_from("/a.b %?@:#+é\\"), max_size=9) | st.text(max_size=9))
def test_the_url_of_a_file_is_read_as_sqlalchemy_reads_it(path: str) -> None:
    """A start with an SQLite file reads it alone."""
    url = f"sqlite:///{path}"
    found = parsed(url)
    whole = found.database if not found.query and "?" not in url else None
    assert file_of(url) == (whole if whole and os.path.isabs(whole) else None)
    assert shown(url) == found.render_as_string()
