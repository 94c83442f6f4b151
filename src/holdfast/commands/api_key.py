"""``holdfast api-key``: manage the keys of programs that use the API."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from holdfast.commands.common import broker_options, json_lines_option, json_option, load_config, show, show_json

_PATH = "/api/v5/api_key"
_SCOPES = ("read", "publish", "retained:write", "admin")
_NAME = click.argument("name", metavar="NAME")


@click.group("api-key")
def api_key() -> None:
    """Manage the keys of programs that use the API.

    Works with a running broker, at once, and without one. The scopes: read shows everything; publish sends messages;
    retained:write sets, clears and restores retained messages; admin does everything.
    """


@api_key.command()
@_NAME
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(_SCOPES),
    help="A scope of the key. Repeatable.",
)
@click.option("--expires", metavar="TIME", help="The key's end: 30d from now, or a time such as 2027-01-31T00:00:00Z.")
@broker_options
@json_option
def add(
    name: str, scopes: tuple[str, ...], expires: str | None, config: Path | None, data_dir: str | None,
    storage: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make a key, and show it and its secret once.

    Programs send both as Authorization: Bearer KEY:SECRET (or KEY.SECRET), or as Basic with the key as user name and
    the secret as password.
    """
    from holdfast.commands.opening import access_to

    body: dict[str, Any] = {"name": name, "scopes": sorted(set(scopes))}
    if expires is not None:
        body["expired_at"] = _end_of(expires)
    with access_to(load_config(config, data_dir, storage)) as access:
        made = access.call("POST", _PATH, body=json.dumps(body).encode())
    key, secret = made["api_key"], made["api_secret"]
    if as_json:
        show_json({**made, "bearer": f"{key}:{secret}"})
        return
    show(f"key    {key}")
    show(f"secret {secret}")
    show(f"header Authorization: Bearer {key}:{secret}")
    show("The secret is shown only now.")


@api_key.command("list")
@broker_options
@json_lines_option
def list_keys(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the keys in the order of their names, without their secrets."""
    from holdfast.commands.opening import access_to

    with access_to(load_config(config, data_dir, storage)) as access:
        keys = access.call("GET", _PATH)["data"]
    for key in keys:
        if as_json:
            show_json(key)
            continue
        end = (
            ""
            if key["expired_at"] == "infinity"
            else f", {'expired' if key['expired'] else 'until'} {key['expired_at']}"
        )
        by = f" by {key['created_by']}" if key["created_by"] else ""
        show(f"{key['name']} {key['api_key']}: {', '.join(key['scopes'])}; made {key['created_at']}{by}{end}")


@api_key.command()
@_NAME
@broker_options
@json_option
def revoke(name: str, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Revoke a key. Its next call is refused."""
    from holdfast.commands.opening import access_to

    if not name:
        raise click.BadParameter("a name has at least one character")
    with access_to(load_config(config, data_dir, storage)) as access:
        access.call("DELETE", f"{_PATH}/{quote(name, safe='', errors='surrogateescape')}")
    if as_json:
        show_json({"name": name, "revoked": True})
    else:
        show(f"{name} was revoked")


def _end_of(text: str) -> str:
    """Return the time of an end as text. The API refuses what is no time."""
    from holdfast.core.units import parse_duration, second_of

    try:
        return second_of(time.time_ns() // 1_000_000 + round(1000 * parse_duration(text)))
    except ValueError:
        return text
