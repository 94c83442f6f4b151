"""``holdfast retainer replays`` and ``settings``: the running replays, and the limits of their speed."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.access.interfaces import Access
from holdfast.admin.settings import CHANGEABLE, UNTIL_RESTART, options_of
from holdfast.cli.retainer.access_option import with_access
from holdfast.cli.terminal_text import printable

_HEADINGS = ("ID", "STATE", "SENT", "PENDING", "AGE", "CLIENT", "FILTER")


@click.command()
@click.option("--cancel", metavar="ID", type=click.IntRange(1), help="End this replay and its client's connection.")
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON.")
@with_access
def replays(access: Access, cancel: int | None, as_json: bool) -> None:
    """List the running replays of retained messages, the oldest first.

    PENDING messages have been read and wait to be sent. AGE is in seconds. If the Session of a cancelled replay
    outlives its connection, the replay continues when the client connects again.
    """
    if cancel is not None:
        access.call("DELETE", f"/replay/{cancel}")
        click.echo(f"replay {cancel} is cancelled", err=True)
        return
    found = access.call("GET", "/replays")["data"]
    if as_json:
        for one in found:
            click.echo(json.dumps(one, ensure_ascii=False))
        return
    if not found:
        click.echo("no replay is running", err=True)
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

    For instance: delivery_rate=1000/s flow_control.client_rate=100/s max_concurrent_replays=infinity. All changes take
    effect at once, or none if one is refused. They last until the broker ends. To keep them, write them into the
    configuration file.
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
                raise click.UsageError(f"{key}: another change gives {one} a value.")
        table[name] = _value(text)
    answer = access.call("PUT", "", body=json.dumps(body).encode()) if changes else access.call("GET", "")
    lasting_until_restart = set(answer.pop(UNTIL_RESTART))
    for name, value in options_of(answer):
        if name.split(".")[0] in CHANGEABLE:
            note = "  # until the broker ends" if name in lasting_until_restart else ""
            click.echo(f"retainer.{name} = {json.dumps(value)}{note}")


def _value(text: str) -> object:
    """Return a value on the command line as its JSON value."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
