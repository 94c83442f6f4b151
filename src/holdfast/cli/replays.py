"""``holdfast retainer replays`` and ``settings``: what is being replayed, and how fast it may be."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.access.interfaces import Access
from holdfast.admin.settings import CHANGEABLE, UNTIL_RESTART, options_of
from holdfast.cli.history import printable
from holdfast.cli.retainer import with_access

_HEADINGS = ("ID", "STATE", "SENT", "PENDING", "AGE", "CLIENT", "FILTER")


@click.command()
@click.option("--cancel", metavar="ID", type=click.IntRange(1), help="End this one, and its client's connection.")
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON.")
@with_access
def replays(access: Access, cancel: int | None, as_json: bool) -> None:
    """List the replays of retained messages that are under way, the oldest first.

    PENDING messages have been read and wait; AGE is in seconds. A session that outlives a cancelled replay's connection
    goes on with the replay when its client is back.
    """
    if cancel is not None:
        access.call("DELETE", f"/replay/{cancel}")
        click.echo(f"{cancel} is cancelled", err=True)
        return
    found = access.call("GET", "/replays")["data"]
    if as_json:
        for one in found:
            click.echo(json.dumps(one, ensure_ascii=False))
        return
    if not found:
        click.echo("no replay is under way", err=True)
        return
    rows = [_HEADINGS] + [
        (
            str(one["id"]), one["state"], str(one["sent"]), str(one["pending"]), f"{one['age']:.1f}",
            printable(one["clientid"]), printable(one["topic"]),
        )
        for one in found
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@click.command()
@click.argument("changes", metavar="[KEY=VALUE]...", nargs=-1)
@with_access
def settings(access: Access, changes: tuple[str, ...]) -> None:
    """Show the settings of the retainer that may change while the broker runs, or change them.

    For instance: delivery_rate=1000/s flow_control.client_rate=100/s max_concurrent_replays=infinity. The change is
    made at once, in all or not at all, and lasts until the broker ends: to keep it, write it into the configuration
    file.
    """
    body: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not (key and equals):
            raise click.UsageError(f"Write a change as KEY=VALUE, not {change!r}.")
        *tables, name = key.removeprefix("retainer.").split(".")
        table = body
        for one in tables:
            table = table.setdefault(one, {})
            if not isinstance(table, dict):
                raise click.UsageError(f"{key}: {one} has a value of its own here.")
        table[name] = _value(text)
    told = access.call("PUT", "", body=json.dumps(body).encode()) if changes else access.call("GET", "")
    lasting_until_restart = set(told.pop(UNTIL_RESTART))
    for name, value in options_of(told):
        if name.split(".")[0] in CHANGEABLE:
            note = "  # until the broker ends" if name in lasting_until_restart else ""
            click.echo(f"retainer.{name} = {json.dumps(value)}{note}")


def _value(text: str) -> object:
    """Return what a value on the command line stands for in JSON."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
