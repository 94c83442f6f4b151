"""``holdfast retainer orphans``, ``replays`` and ``settings``: publishers that are gone, and running replays."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.commands.common import Failed, json_lines_option, json_option, moment, say, show, show_json, topic_filter
from holdfast.commands.retainer_access import clear, pages, with_access
from holdfast.core.terminal import printable

if TYPE_CHECKING:
    from holdfast.commands.interfaces import Access
    from holdfast.config import Config


# ``holdfast retainer orphans``: the topics whose publishers have not been seen for a time.
#
# A client is *seen* while it is connected, when it disconnects from a Session that is kept, and when it stores a
# retained message. A Session whose end of connection is not known any more counts as seen. Messages without a
# publisher, such as those that operators set, are never orphans.


#: the age of the last sight of an orphan's publisher, unless the operator names another
USUAL_AGE = "30d"

_CLIENTS = "/api/v5/clients"


class Sightings:
    """Tells which publishers have not been seen since a time, in milliseconds since the epoch."""

    def __init__(self, access: Access, since: int) -> None:
        """Read who has stored a message since then, on any topic."""
        self._access = access
        self._since = since
        self._seen = {row["from_clientid"] for row in pages(access, {"newer_than": str(since)})}
        self._lost: set[str] = set()

    def is_lost(self, publisher: str | None) -> bool:
        """Tell whether the publisher of a message has not been seen. The answer for each is kept."""
        if not publisher or publisher in self._seen:
            return False
        if publisher not in self._lost:
            (self._seen if self.is_present(publisher) else self._lost).add(publisher)
        return publisher in self._lost

    def is_present(self, publisher: str) -> bool:
        """Ask the broker whether the client is connected, or has a Session that it left since then."""
        if not self._access.reaches_subscribers:
            return False
        found = self._access.call("GET", _CLIENTS, {"clientid": publisher})["data"]
        return any(client["connected"] or self._has_left_since(client.get("disconnected_at")) for client in found)

    def _has_left_since(self, date: str | None) -> bool:
        from holdfast.core.units import moment_of

        return date is None or moment_of(date, time.time_ns() // 1_000_000) >= self._since


def check_clients_known(access: Access, config: Config) -> None:
    """Refuse to guess who is an orphan where clients may be connected that nobody here knows of."""
    if not access.reaches_subscribers:
        raise Failed("no broker runs here, so it is not known which clients are seen: --orphans needs one")
    if not config.storage.url.startswith("sqlite:"):
        raise Failed(
            "clients of other brokers on this database are not known here: use --publisher in the place of --orphans"
        )


def clear_orphans(access: Access, selected: Mapping[str, str], since: int, report: Callable[[int], None]) -> int:
    """Clear the selected messages of each client that has not been seen. It is asked for again just before."""
    sightings = Sightings(access, since)
    wanted = {name: value for name, value in selected.items() if name not in ("dry_run", "quiet")}
    lost = {row["from_clientid"] for row in pages(access, wanted) if sightings.is_lost(row["from_clientid"])}
    count = 0
    for client in sorted(lost):
        if not sightings.is_present(client):
            count = clear(access, {**selected, "publisher": client}, report, count)
    return count


@click.command()
@click.argument("topic_filter", metavar="[FILTER]", callback=topic_filter, required=False)
@click.option(
    "--older-than",
    metavar="TIME",
    callback=moment,
    default=USUAL_AGE,
    show_default=True,
    help="List topics of clients not seen since this time: an age such as 90m or 30d, or 2026-11-21T10:00:00Z.",
)
@json_lines_option
@with_access
def orphans(access: Access, topic_filter: str | None, older_than: int, as_json: bool) -> None:
    """List the topics whose publisher has not been seen for a time.

    Each line has the time of the message, the Client Identifier and the topic.

    A client is seen while it is connected, when it leaves a Session that is kept, and when it stores a retained
    message. The broker knows its own clients only, not those of other brokers on the same database.
    """
    if not access.reaches_subscribers:
        say("no broker runs here, so clients count as seen only when they have stored a message")
    sightings = Sightings(access, older_than)
    selected = {"older_than": str(older_than)}
    if topic_filter is not None:
        selected["topic"] = topic_filter
    for row in pages(access, selected):
        if not sightings.is_lost(row["from_clientid"]):
            continue
        if as_json:
            show_json({"topic": row["topic"], "publisher": row["from_clientid"], "stored_at": row["publish_at"]})
        else:
            show(f"{row['publish_at']}  {row['from_clientid']}  {row['topic']}")


# ``holdfast retainer replays`` and ``settings``: the running replays, and the limits of their speed.


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

    For instance: delivery_rate=1000/s flow_control.client_rate=100/s. All changes take
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
    from holdfast.admin.api.settings_view import CHANGEABLE, UNTIL_RESTART, options_of

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
