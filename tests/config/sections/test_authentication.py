"""The methods of each listener: their order, the default, and every mistake with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config import load
from tests.config.conftest import Problems

METHODS = """\
[authentication.users]
type = "scram"
path = "users.scram"
[authentication.others]
type = "scram"
path = "others.scram"
"""
LISTENER = "[listeners.x]\nauthentication = "


def names(config: Path) -> tuple[str, ...]:
    read = load(config)
    return read.authentication.names_of(read.listeners["x"])


def test_a_listener_asks_the_methods_that_it_names_in_that_order(write: Callable[[str], Path]) -> None:
    assert names(write(f'{LISTENER}["others"]\n{METHODS}')) == ("others",)


def test_a_listener_that_names_none_asks_all_in_the_order_of_the_file(write: Callable[[str], Path]) -> None:
    one = METHODS[: METHODS.index("[authentication.others]")]
    assert names(write(f"[listeners.x]\n{one}")) == ("users",)
    assert names(write(f'{LISTENER}"all"\n{one}')) == ("users",)


def test_the_file_of_scram_users_belongs_to_every_listener(write: Callable[[str], Path]) -> None:
    """Also to one with an empty list: so it was before listeners had lists."""
    text = '[authentication]\nscram_file = "users.scram"\n'
    assert names(write(f"[listeners.x]\n{text}")) == ("scram_file",)
    assert names(write(f"{LISTENER}[]\n{text}")) == ("scram_file",)


def test_a_listener_for_guests_only(write: Callable[[str], Path]) -> None:
    assert names(write(f"{LISTENER}[]\nallow_anonymous = true\n{METHODS}")) == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('["user"]', 'no table is named [authentication.user]; did you mean "users"?'),
        ('["zebra"]', 'no table is named [authentication.zebra]; there are: "users", "others"'),
        ('["users", "users"]', 'found "users" twice in the list; allowed: each name once'),
        ("[1]", 'found 1 in the list; allowed: "all", or a list of names of tables [authentication.NAME]'),
        ('"users"', 'found "users"; allowed: "all", or a list of names of tables [authentication.NAME]'),
        (
            "[]",
            "an empty list admits nobody; name methods, or admit clients without credentials:"
            " listeners.x.allow_anonymous = true",
        ),
        (
            '["users", "others"]',
            "SCRAM-SHA-256 is offered by users, others; a listener can have one file of these users: name the methods"
            " of each listener, and leave out authentication.scram_file",
        ),
    ],
)
def test_a_list_that_cannot_be_used_is_a_problem(
    problems_of: Callable[..., Problems], value: str, message: str
) -> None:
    assert problems_of(f"{LISTENER}{value}\n{METHODS}") == [(2, "listeners.x.authentication", message)]


def test_names_without_any_method(problems_of: Callable[..., Problems]) -> None:
    ((_, _, message),) = problems_of(f'{LISTENER}["passwords"]\n')
    assert message == "no table is named [authentication.passwords]; there are no such tables"


def test_a_file_of_scram_users_without_a_path(problems_of: Callable[..., Problems]) -> None:
    ((line, key, message),) = problems_of('[authentication.users]\ntype = "scram"\n')
    assert (line, key) == (1, "authentication.users.path")
    assert message == "is missing; set the path of the file with the users"


def test_a_rejected_table_is_the_only_problem(problems_of: Callable[..., Problems]) -> None:
    """Not the listener that names it, nor the listener that would be open without it."""
    text = '[listeners.x]\nendpoint = "tcp:1883"\nauthentication = ["users"]\n[authentication.users]\ntype = "scam"\n'
    ((line, key, _),) = problems_of(text)
    assert (line, key) == (5, "authentication.users.type")
