"""``holdfast retainer info``, ``topics``, ``get``, ``set`` and ``clean``."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import IO, Any

import click

from holdfast.access.interfaces import Access, Inaccessible
from holdfast.cli.progress import progress
from holdfast.cli.retainer.access_option import with_access
from holdfast.cli.retainer.export import selection
from holdfast.cli.time_option import at_option

#: messages that one call lists, and that one call clears
_PAGE = 1000
_CLEARED = 5000


@click.command()
@with_access
def info(access: Access) -> None:
    """Show the number of retained messages, their bytes and their database."""
    answer = access.call("GET", "/info")
    click.echo(f"retained messages: {answer['count']}")
    click.echo(f"bytes of payload: {answer['payload_bytes']}")
    click.echo(f"replays running: {answer['replays']}")
    click.echo(f"store: {answer['store']}")
    if answer.get("damage") is not None:
        click.echo(f"DAMAGED, the broker stores nothing any more: {answer['damage']}")
    for name in answer.get("quarantined", ()):
        click.echo(f"a damaged database is in quarantine beside it: {name}")


@click.command()
@click.argument("topic_filter", metavar="[FILTER]", required=False)
@at_option
@with_access
def topics(access: Access, topic_filter: str | None, at: int | None) -> None:
    """List the topics that have a retained message, one a line, in order. With FILTER, list only matching topics."""
    for entry in _pages(access, selection(topic_filter, at)):
        click.echo(entry["topic"], color=True)  # unchanged, even if it contains colour codes


@click.command()
@click.argument("topic")
@click.option("--payload", is_flag=True, help="Print only the payload, byte for byte.")
@at_option
@with_access
def get(access: Access, topic: str, payload: bool, at: int | None) -> None:
    """Print the retained message of TOPIC as a line of an export. The exit status is 1 if there is none."""
    if "+" in topic or "#" in topic:
        raise Inaccessible(f"{topic}: is a filter; name one topic, or use: holdfast retainer export --topic")
    record = b"".join(access.pieces("/export", selection(topic, at)))
    if not record:
        raise Inaccessible(f"{topic}: {'has' if at is None else 'had'} no retained message")
    out = sys.stdout.buffer
    out.write(b64decode(json.loads(record)["payload"]) if payload else record)
    out.flush()


@click.command("set")
@click.argument("topic")
@click.argument("payload", required=False)
@click.option("--file", type=click.File("rb"), help="Take the payload from this file; - is standard input.")
@click.option("--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="Its Quality of Service.")
@click.option("--expiry", type=click.IntRange(0, 0xFFFFFFFF), help="Seconds until it expires.")
@click.option("--content-type", help="The Content Type of the payload, for MQTT 5 clients.")
@click.option("--user-property", metavar="NAME=VALUE", multiple=True, help="A User Property; may be repeated.")
@click.option("--quiet", is_flag=True, help="Do not send it to present subscribers.")
@with_access
def set_message(
    access: Access, topic: str, payload: str | None, file: IO[bytes] | None, qos: int, expiry: int | None,
    content_type: str | None, user_property: tuple[str, ...], quiet: bool,
) -> None:  # fmt: skip
    """Retain PAYLOAD for TOPIC. A running broker sends it to present subscribers like any other message."""
    if (payload is None) == (file is None):
        raise click.UsageError("Give a PAYLOAD, or --file.")
    properties: dict[str, Any] = {}
    if expiry is not None:
        properties["message_expiry_interval"] = expiry
    if content_type is not None:
        properties["content_type"] = content_type
    if user_property:
        properties["user_properties"] = [_user_property(text) for text in user_property]
    data = file.read() if file is not None else os.fsencode(payload or "")
    request = {
        "topic": topic, "payload": b64encode(data).decode(), "payload_encoding": "base64", "qos": qos,
        "properties": properties, "quiet": quiet,
    }  # fmt: skip
    access.call("POST", "/messages", body=json.dumps(request).encode())
    _say_if_nobody_heard(access, quiet)


@click.command()
@click.argument("topic_filter", metavar="FILTER")
@click.option("--dry-run", is_flag=True, help="Clear nothing, and print how many messages match.")
@click.option("--quiet", is_flag=True, help="Do not send the clears to present subscribers.")
@with_access
def clean(access: Access, topic_filter: str, dry_run: bool, quiet: bool) -> None:
    """Clear the retained messages of all topics that match FILTER. Messages published meanwhile stay.

    A running broker sends each clear to present subscribers, as an empty message. It waits for slow ones.

    As in MQTT, # does not match topics that begin with $. Clear such topics with $NAME/#.
    """
    count = 0
    arguments = {
        "topic": topic_filter, "dry_run": "true" if dry_run else "false", "quiet": "true" if quiet else "false",
        "limit": str(_CLEARED),
    }  # fmt: skip
    with progress("counting" if dry_run else "clearing", None) as report:
        while True:
            answer = access.call("DELETE", "/messages", arguments)
            count += answer["count"]
            report(count)
            if not answer["meta"]["hasnext"]:
                break
            arguments["cursor"] = answer["meta"]["cursor"]
    click.echo(f"{count} would be cleared" if dry_run else f"{count} cleared")
    if count and not dry_run:
        _say_if_nobody_heard(access, quiet)


def _pages(access: Access, selected: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield all selected messages, page by page."""
    arguments = {"limit": str(_PAGE), **selected}
    while True:
        page = access.call("GET", "/messages", arguments)
        yield from page["data"]
        if not page["meta"]["hasnext"]:
            return
        arguments["cursor"] = page["meta"]["cursor"]


def _say_if_nobody_heard(access: Access, quiet: bool) -> None:
    """Tell the operator if the change reached no subscriber, though that was not asked for."""
    if not (quiet or access.reaches_subscribers):
        click.echo("no broker runs here, so no subscriber was told; new Subscriptions get the change", err=True)


def _user_property(text: str) -> list[str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"Write a User Property as NAME=VALUE, not {text!r}.")
    return [name, value]
