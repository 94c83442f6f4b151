"""``holdfast acl add|list|move|remove``: the rules in the broker's own database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.commands.common import broker_options, json_lines_option, json_option, load_config, say, show, show_json
from holdfast.commands.user import RULES_PATH, show_all

if TYPE_CHECKING:
    from holdfast.commands.interfaces import Access

_ACTIONS = ("publish", "retain", "clear", "subscribe", "receive")
_NUMBER = click.argument("number", type=click.IntRange(1))
_BEFORE = click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="The place: before this rule.")


@contextmanager
def _access(config: Path | None, data_dir: str | None, storage: str | None) -> Iterator[Access]:
    from holdfast.commands.opening import access_to

    loaded = load_config(config, data_dir, storage)
    with access_to(loaded) as access:
        yield access
    if config is not None and not loaded.authorization.has_database:
        say(f'note: {config} names no table [authorization.NAME] with type = "database", so these rules do not count')


@click.command()
@click.argument("verdict", type=click.Choice(("allow", "deny")))
@click.option(
    "--action", "actions", required=True, multiple=True, metavar="ACTION",
    help=f"What is allowed or denied: {', '.join(_ACTIONS)}, several with commas, or all. Repeatable.",
)  # fmt: skip
@click.option(
    "--topic", "topics", required=True, multiple=True, help="A Topic Filter; %u, %c and %g are names. Repeatable."
)
@click.option("--user", "users", multiple=True, help="Only for this user; $guest is clients without one. Repeatable.")
@click.option("--group", "groups", multiple=True, help="Only for members of this group. Repeatable.")
@click.option("--client", "clients", multiple=True, help="Only for this Client Identifier. Repeatable.")
@click.option("--listener", "listeners", multiple=True, help="Only on this listener. Repeatable.")
@click.option("--address", "addresses", multiple=True, help="Only from this address or network. Repeatable.")
@_BEFORE
@broker_options
@json_option
def add(
    verdict: str,
    actions: tuple[str, ...],
    before: int | None,
    config: Path | None,
    data_dir: str | None,
    storage: str | None,
    as_json: bool,
    **lists: tuple[str, ...],
) -> None:
    """Add a rule to the database, as the last one.

    The first rule that matches decides.
    Without --user, --group, --client, --listener and --address, the rule is for all clients.
    """
    words = [word for each in actions for word in each.split(",")]
    fields: dict[str, Any] = {key: list(values) for key, values in lists.items() if values}
    fields |= {"action": "all" if words == ["all"] else words, "allow": verdict == "allow"}
    with _access(config, data_dir, storage) as access:
        added = access.call("POST", RULES_PATH, _place(before), json.dumps(fields).encode())
    _report(added, "added", as_json)


@click.command()
@_NUMBER
@_BEFORE
@broker_options
@json_option
def move(
    number: int, before: int | None, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool
) -> None:
    """Move a rule of the database before another one, or to the end."""
    with _access(config, data_dir, storage) as access:
        moved = access.call("PUT", f"{RULES_PATH}/{number}", _place(before))
    _report(moved, "moved", as_json)


@click.command()
@_NUMBER
@broker_options
@json_option
def remove(number: int, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Remove a rule of the database."""
    with _access(config, data_dir, storage) as access:
        access.call("DELETE", f"{RULES_PATH}/{number}")
    if as_json:
        show_json({"number": number, "removed": True})
    else:
        show(f"rule {number} was removed")


@click.command("list")
@broker_options
@json_lines_option
def list_rules(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the rules of the database in their order. The first rule that matches decides."""
    with _access(config, data_dir, storage) as access:
        show_all(access, RULES_PATH, as_json, _text)


def _place(before: int | None) -> dict[str, str]:
    return {} if before is None else {"before": str(before)}


def _report(rule: dict[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        show_json(rule)
    else:
        show(f"{what}: {_text(rule)}")


def _text(fields: dict[str, Any]) -> str:
    from holdfast.identity.database_rules import stored_rule

    number = fields.pop("number")
    return f"{number}  {stored_rule(number, fields).rule}"
