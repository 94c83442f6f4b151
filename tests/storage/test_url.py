"""A database's URL is shown without its secrets."""

from __future__ import annotations

import pytest

from holdfast.config.sections.storage import without_password
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.url import shown

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
