"""``holdfast retainer replays`` and ``settings``: the running replays, and the limits of their speed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.reporting import json_lines_option, json_option, say, show, show_json
from holdfast.cli.retainer.access_option import with_access
from holdfast.terminal_text import printable

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access

_HEADINGS = ("ID", "STATE", "SENT", "PENDING", "AGE", "CLIENT", "FILTER")


@click.command()
@click.option("--cancel", metavar="ID", type=click.IntRange(1), help="End this replay and its client's connection.")
@json_lines_option
@with_access
def replays(access: Access, cancel: int | None, as_json: bool) -> None:
    """List the running replays of retained messages, the oldest first.

    PENDING messages have been read and wait to be sent. AGE is in seconds. If the Session of a cancelled replay
    outlives its connection, the replay continues when the client connects again.
    """
    if cancel is not None:
        access.call("DELETE", f"/replay/{cancel}")
        say(f"replay {cancel} is cancelled")
        return
    found = access.call("GET", "/replays")["data"]
    if as_json:
        for one in found:
            show_json(one)
        return
    if not found:
        say("no replay is running")
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
        show("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@click.command()
@click.argument("changes", metavar="[KEY=VALUE]...", nargs=-1)
@json_option
@with_access
def settings(access: Access, changes: tuple[str, ...], as_json: bool) -> None:
    """Show or change settings of the running retainer.

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
    from holdfast.admin.retained.settings_view import CHANGEABLE, UNTIL_RESTART, options_of

    answer = access.call("PUT", "", body=json.dumps(body).encode()) if changes else access.call("GET", "")
    lasting_until_restart = set(answer.pop(UNTIL_RESTART))
    shown = {name: value for name, value in options_of(answer) if name.split(".")[0] in CHANGEABLE}
    if as_json:
        until_restart = [f"retainer.{name}" for name in shown if name in lasting_until_restart]
        show_json({**{f"retainer.{name}": value for name, value in shown.items()}, UNTIL_RESTART: until_restart})
        return
    for name, value in shown.items():
        note = "  # until the broker ends" if name in lasting_until_restart else ""
        show(f"retainer.{name} = {json.dumps(value)}{note}")


def _value(text: str) -> object:
    """Return a value on the command line as its JSON value."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
