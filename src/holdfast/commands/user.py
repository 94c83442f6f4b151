"""``holdfast user``: manage the users in the broker's own database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from holdfast.commands.common import (
    Failed,
    broker_options,
    json_lines_option,
    json_option,
    load_config,
    say,
    show,
    show_json,
)
from holdfast.commands.passwd import read_password

if TYPE_CHECKING:
    from holdfast.commands.interfaces import Access


_USER = click.argument("name", metavar="USER")


def _groups_option(help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--group", "groups", multiple=True, metavar="GROUP", help=f"{help} Repeatable.")


@contextmanager
def _access(config: Path | None, data_dir: str | None, storage: str | None) -> Iterator[Access]:
    from holdfast.commands.opening import access_to

    loaded = load_config(config, data_dir, storage)
    with access_to(loaded) as access:
        yield access
    if config is not None and loaded.authentication.database_users is None:
        say(f'note: {config} has no table [authentication.NAME] with type = "database", so these users cannot log in')


@click.group()
def user() -> None:
    """Manage the users in the broker's own database.

    A table [authentication.NAME] with type = "database" lets them log in. Works with a running broker, at once, and
    without one. Clients of a user who is removed or changed are disconnected.
    """


@user.command()
@_USER
@_groups_option("A group of the user, for rules.")
@broker_options
@json_option
def add(
    name: str, groups: tuple[str, ...], config: Path | None, data_dir: str | None, storage: str | None, as_json: bool
) -> None:
    """Add a user.

    Asks for the password twice on a terminal, and otherwise reads one line from standard input.
    """
    body = json.dumps({"user_id": name, "password": _password(), "groups": groups}).encode()
    with _access(config, data_dir, storage) as access:
        _report(access.call("POST", USERS_PATH, body=body), "was added", as_json)


@user.command()
@_USER
@broker_options
@json_option
def passwd(name: str, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Change a user's password.

    Asks for the password twice on a terminal, and otherwise reads one line from standard input.
    """
    body = json.dumps({"password": _password()}).encode()
    with _access(config, data_dir, storage) as access:
        _report(access.call("PUT", _path(name), body=body), "has a new password", as_json)


@user.command()
@_USER
@_groups_option("A group of the user.")
@broker_options
@json_option
def groups(
    name: str, groups: tuple[str, ...], config: Path | None, data_dir: str | None, storage: str | None, as_json: bool
) -> None:
    """Replace the groups of a user.

    Without --group, the user leaves all groups.
    """
    with _access(config, data_dir, storage) as access:
        _report(access.call("PUT", _path(name), body=json.dumps({"groups": groups}).encode()), "was changed", as_json)


@user.command()
@_USER
@broker_options
@json_option
def remove(name: str, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Remove a user."""
    with _access(config, data_dir, storage) as access:
        access.call("DELETE", _path(name))
    if as_json:
        show_json({"user_id": name, "removed": True})
    else:
        show(f"{name} was removed")


@user.command("list")
@broker_options
@json_lines_option
def list_users(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the users with their groups, in the order of their names."""
    with _access(config, data_dir, storage) as access:
        show_all(access, USERS_PATH, as_json, _text)


def _path(name: str) -> str:
    if not name:
        raise click.BadParameter("a user name has at least one character")
    return f"{USERS_PATH}/{quote(name, safe='', errors='surrogateescape')}"


def _password() -> str:
    try:
        return read_password(confirmed=True).decode()
    except UnicodeDecodeError:
        raise Failed("the password is not UTF-8; MQTT allows any bytes, but this command does not") from None


def _report(user: dict[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        show_json(user)
    else:
        show(f"{user['user_id']} {what}{_in_groups(user)}")


def _text(user: dict[str, Any]) -> str:
    return f"{user['user_id']}{_in_groups(user)}, changed {user['changed_at']}"


def _in_groups(user: dict[str, Any]) -> str:
    return f" (groups: {', '.join(user['groups'])})" if user["groups"] else ""


# Lists of users and rules that the API answers in pages.


USERS_PATH = "/api/v5/users"
RULES_PATH = "/api/v5/rules"


def pages(access: Access, path: str) -> Iterator[dict[str, Any]]:
    """Yield all objects of a list that is answered in pages."""
    arguments: dict[str, str] = {}
    while True:
        page = access.call("GET", path, arguments)
        yield from page["data"]
        if "cursor" not in page["meta"]:
            return
        arguments = {"cursor": page["meta"]["cursor"]}


def show_all(access: Access, path: str, as_json: bool, text: Callable[[dict[str, Any]], str]) -> None:
    """Show all objects of a list: each as one line of JSON, or as its ``text``."""
    for one in pages(access, path):
        if as_json:
            show_json(one)
        else:
            show(text(one))
