"""``holdfast retainer orphans``: the topics whose publishers have not been seen for a time.

A client is *seen* while it is connected, when it disconnects from a Session that is kept, and when it stores a retained
message. A Session whose end of connection is not known any more counts as seen. Messages without a publisher, such as
those that operators set, are never orphans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.failures import Failed
from holdfast.cli.reporting import json_lines_option, say, show, show_json
from holdfast.cli.retainer.access_option import with_access
from holdfast.cli.retainer.pages import clear, pages
from holdfast.cli.time_option import moment
from holdfast.cli.topic_values import topic_filter

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access
    from holdfast.config import Config

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
        from holdfast.times import moment_of

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
