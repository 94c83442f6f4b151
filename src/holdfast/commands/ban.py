"""``holdfast ban``: list, add and remove bans."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from holdfast.commands.common import broker_options, json_lines_option, json_option, load_config, show, show_json

if TYPE_CHECKING:
    from holdfast.commands.bans import BanAccess

_PATH = "/api/v5/banned"

_WHO = click.argument("who")


def _kind_options(command: Callable[..., None]) -> Callable[..., None]:
    for add in (
        click.option("--client", "kind", flag_value="clientid", help="WHO is a Client Identifier."),
        click.option("--user", "kind", flag_value="username", help="WHO is a User Name."),
        click.option(
            "--address",
            "kind",
            flag_value="peerhost_net",
            default="peerhost_net",
            help="WHO is an address, or a network such as 192.0.2.0/24. This is the default.",
        ),
    ):
        command = add(command)
    return command


def _duration(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from holdfast.core.units import parse_duration

    try:
        seconds = parse_duration(value)
    except ValueError:
        raise click.BadParameter("write a time such as 10m, 12h or 7d") from None
    if not 1 <= seconds <= 100 * 365 * 86400:
        raise click.BadParameter("a ban lasts from 1s to 36500d")
    return seconds


@contextmanager
def _bans(config: Path | None, data_dir: str | None, storage: str | None) -> Iterator[BanAccess]:
    from holdfast.commands.bans import bans_of

    with bans_of(load_config(config, data_dir, storage)) as bans:
        yield bans


@click.group()
def ban() -> None:
    """Ban addresses, networks, users or Client Identifiers.

    Works with a running broker, at once, and without one. Bans last across restarts until they end or are removed.
    Addresses that were banned after failed logins are listed too; they are banned until the broker ends at the latest.
    """


@ban.command("list")
@broker_options
@json_lines_option
def list_bans(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the bans in force, with their ends, authors and reasons."""
    with _bans(config, data_dir, storage) as bans:
        found = bans.call("GET", _PATH)["data"]
    for one in found:
        if as_json:
            show_json(one)
        else:
            show(_text(one))


@ban.command("add")
@_WHO
@_kind_options
@click.option(
    "--for", "seconds", callback=_duration, metavar="TIME", help="The duration, such as 10m or 7d; default: for ever."
)
@click.option("--reason", default="", help="A reason, shown by ban list.")
@broker_options
@json_option
def add(
    who: str,
    kind: str,
    seconds: float | None,
    reason: str,
    config: Path | None,
    data_dir: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Ban WHO: an address, a network, a user or a Client Identifier. Connected clients are disconnected."""
    wanted: dict[str, Any] = {"as": kind, "who": who, "reason": reason}
    if seconds is not None:
        wanted["until"] = int(time.time() + seconds)
    with _bans(config, data_dir, storage) as bans:
        added = bans.call("POST", _PATH, body=json.dumps(wanted).encode())
    if as_json:
        show_json(added)
    else:
        show(_text(added))


@ban.command("remove")
@_WHO
@_kind_options
@broker_options
@json_option
def remove(who: str, kind: str, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Remove the ban of WHO, also one after failed logins."""
    with _bans(config, data_dir, storage) as bans:
        bans.call("DELETE", f"{_PATH}/{kind}/{quote(who, safe='')}")
    if as_json:
        show_json({"as": kind, "who": who, "removed": True})
    else:
        show(f"{who} is not banned any more")


def _text(ban: dict[str, Any]) -> str:
    end = "for ever" if ban["until"] == "infinity" else f"until {ban['until']}"
    by = f" by {ban['by']}" if ban["by"] else ""
    why = f": {ban['reason']}" if ban["reason"] else ""
    return f"{ban['as']} {ban['who']} is banned {end}{by}{why}"
