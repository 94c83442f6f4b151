"""``holdfast retainer info``, ``topics``, ``get``, ``set``, ``clean``, ``export``, ``count``, ``tree``, ``policy``."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from holdfast.commands.common import (
    Failed,
    age_ago,
    at_option,
    json_lines_option,
    json_option,
    moment,
    progress,
    say,
    show,
    show_json,
    topic_filter,
    topic_name,
)
from holdfast.commands.retainer_access import (
    clear,
    pages,
    say_left_out,
    with_access,
    with_access_and_config,
)
from holdfast.commands.retainer_replays import USUAL_AGE, check_clients_known, clear_orphans
from holdfast.core.terminal import ExitStatus, printable

if TYPE_CHECKING:
    from holdfast.commands.interfaces import Access
    from holdfast.config import Config


# ``holdfast retainer info``, ``topics``, ``get``, ``set`` and ``clean``.


@click.command()
@json_option
@with_access
def info(access: Access, as_json: bool) -> None:
    """Show the number of retained messages, and the database.

    The exit status is 3 while the database is away or locked. Then the numbers are the last known ones.
    """
    answer = access.call("GET", "/info")
    if as_json:
        show_json(answer)
    else:
        show(f"retained messages: {answer['count']}")
        show(f"bytes: {answer['bytes']}")
        show(f"replays running: {answer['replays']}")
        show(f"store: {answer['store']}")
        if not answer["available"]:
            show("the database is away or locked: the numbers are the last known ones, and changes wait")
        if answer.get("damage") is not None:
            show(f"DAMAGED, the broker stores nothing any more: {answer['damage']}")
        for name in answer.get("quarantined", ()):
            show(f"a damaged database is in quarantine beside it: {name}")
    if not answer["available"]:
        raise SystemExit(ExitStatus.FOUND)


@click.command()
@click.argument("topic_filter", metavar="[FILTER]", callback=topic_filter, required=False)
@at_option
@json_lines_option
@click.option("-0", "--null", is_flag=True, help="Print topics unchanged, each with a null character after it.")
@with_access
def topics(access: Access, topic_filter: str | None, at: int | None, as_json: bool, null: bool) -> None:
    """List the topics that have a retained message.

    Each line has one topic; the lines are sorted. With FILTER, only matching topics are listed. Control characters and
    invisible ones are shown as escapes. For programs, --json and --null print exact topics.
    """
    if as_json and null:
        raise click.UsageError("Give --json or --null, not both.")
    for entry in pages(access, selection(topic_filter, at)):
        if as_json:
            show_json(entry)
        elif null:
            click.echo(entry["topic"].encode() + b"\0", nl=False)
        else:
            show(entry["topic"])


@click.command()
@click.argument("topic", callback=topic_name)
@click.option("--payload", is_flag=True, help="Print only the payload, byte for byte.")
@at_option
@with_access
def get(access: Access, topic: str, payload: bool, at: int | None) -> None:
    """Print the retained message of TOPIC as a line of an export. The exit status is 1 if there is none."""
    record = b"".join(access.pieces("/export", selection(topic, at)))
    if not record:
        raise Failed(f"{topic}: {'has' if at is None else 'had'} no retained message")
    out = sys.stdout.buffer
    out.write(b64decode(json.loads(record)["payload"]) if payload else record)
    out.flush()


@click.command("set")
@click.argument("topic", callback=topic_name)
@click.argument("payload", required=False)
@click.option(
    "--file",
    type=click.Path(allow_dash=True, path_type=Path),
    help="Take the payload from this file; - is standard input.",
)
@click.option("--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="Its Quality of Service.")
@click.option("--expiry", type=click.IntRange(0, 0xFFFFFFFF), help="Seconds until it expires.")
@click.option("--content-type", help="The Content Type of the payload, for MQTT 5 clients.")
@click.option("--user-property", metavar="NAME=VALUE", multiple=True, help="A User Property; may be repeated.")
@click.option("--quiet", is_flag=True, help="Do not send it to present subscribers.")
@with_access
def set_message(
    access: Access, topic: str, payload: str | None, file: Path | None, qos: int, expiry: int | None,
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
    data = os.fsencode(payload or "") if file is None else _content(file)
    request = {
        "topic": topic, "payload": b64encode(data).decode(), "payload_encoding": "base64", "qos": qos,
        "properties": properties, "quiet": quiet,
    }  # fmt: skip
    access.call("POST", "/messages", body=json.dumps(request).encode())
    _say_if_nobody_heard(access, quiet)


@click.command()
@click.argument("topic_filter", metavar="FILTER", callback=topic_filter)
@click.option(
    "--older-than",
    metavar="TIME",
    callback=moment,
    help="Clear only messages stored before this time: an age such as 90m or 30d, or 2026-11-21T10:00:00Z.",
)
@click.option("--publisher", metavar="CLIENT", help="Clear only messages of the client with this Client Identifier.")
@click.option(
    "--orphans",
    is_flag=True,
    help=f"Clear only messages of clients not seen since the time of --older-than, or for {USUAL_AGE}.",
)
@click.option("--expired", is_flag=True, help="Clear only expired messages that the sweep has not removed yet.")
@click.option("--dry-run", is_flag=True, help="Clear nothing, and print how many messages match.")
@click.option("--quiet", is_flag=True, help="Do not send the clears to present subscribers.")
@json_option
@with_access_and_config
def clean(
    access: Access, config: Config, topic_filter: str, older_than: int | None, publisher: str | None, orphans: bool,
    expired: bool, dry_run: bool, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Clear the retained messages of all topics that match FILTER. Messages published meanwhile stay.

    With several conditions, clear the messages for which all hold. A running broker sends each clear to present
    subscribers, as an empty message. It waits for slow ones. For subscribers, expired messages have gone already: their
    clears are not sent.

    As in MQTT, # does not match topics that begin with $. Clear such topics with $NAME/#.
    """
    selected = {
        "topic": topic_filter, "dry_run": "true" if dry_run else "false", "quiet": "true" if quiet else "false",
    }  # fmt: skip
    if orphans and older_than is None:
        older_than = age_ago(USUAL_AGE)
    if older_than is not None:
        selected["older_than"] = str(older_than)
    if publisher is not None:
        selected["publisher"] = publisher
    if expired:
        selected["expired"] = "true"
    with progress("counting" if dry_run else "clearing", None) as report:
        if orphans:
            assert older_than is not None
            check_clients_known(access, config)
            count = clear_orphans(access, selected, older_than, report)
        else:
            count = clear(access, selected, report)
    if as_json:
        show_json({"count": count, "dry_run": dry_run})
    else:
        show(f"{count} would be cleared" if dry_run else f"{count} cleared")
    if count and not dry_run:
        _say_if_nobody_heard(access, quiet or expired)


def _say_if_nobody_heard(access: Access, quiet: bool) -> None:
    """Tell the operator if the change reached no subscriber, though that was not asked for."""
    if not (quiet or access.reaches_subscribers):
        say("no broker runs here, so no subscriber was told; new Subscriptions get the change")


def _content(file: Path) -> bytes:
    return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()


def _user_property(text: str) -> list[str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"Write a User Property as NAME=VALUE, not {text!r}.")
    return [name, value]


# ``holdfast retainer export``: write retained messages to a file.


_NEWLINE = ord("\n")


@click.command()
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path), default="-")
@click.option("--topic", "topic_filter", metavar="FILTER", callback=topic_filter, help="Export only topics that match.")
@at_option
@with_access
def export(access: Access, file: Path, topic_filter: str | None, at: int | None) -> None:
    """Export retained messages to FILE.

    Without FILE, the export goes to standard output. It has one JSON object on each line, sorted by topic. Each message
    is the one retained when the export reaches its topic. FILE appears under its name when it is complete.
    """
    count = 0
    arguments = selection(topic_filter, at)
    total = None if arguments else access.call("GET", "/info")["count"]
    with _replacing(file) as out, progress("exporting", total) as report:
        for piece in access.pieces("/export", arguments):
            out.write(piece)
            count += piece.count(_NEWLINE)
            report(count)
    if at is not None:
        say_left_out(access.call("GET", "/messages", {**arguments, "limit": "1"})["meta"]["left_out"])
    say(f"{count} exported")


@contextmanager
def _replacing(file: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing. It gets its name when it is complete."""
    if str(file) == "-":
        out = sys.stdout.buffer
        yield out
        out.flush()
        return
    unfinished = file.with_name(file.name + ".partial")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as writing:
            yield writing
            writing.flush()
            os.fsync(writing.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def selection(topic_filter: str | None, at: int | None) -> dict[str, str]:
    """Return the arguments of a call that select messages by topic and time."""
    arguments = {} if topic_filter is None else {"topic": topic_filter}
    return arguments if at is None else {**arguments, "at": str(at)}


# ``holdfast retainer count`` and ``tree``: how many messages there are, and where.


#: nodes that one call lists
_PAGE = 200


@click.command()
@click.argument("topic_filter", metavar="[FILTER]", callback=topic_filter, required=False)
@json_option
@with_access
def count(access: Access, topic_filter: str | None, as_json: bool) -> None:
    """Count the retained messages whose topics match FILTER, and their bytes."""
    arguments = {"exact": "true"} if topic_filter is None else {"topic": topic_filter, "exact": "true"}
    answer = access.call("GET", "/count", arguments)
    if as_json:
        show_json({"count": answer["count"], "bytes": answer["bytes"]})
        return
    show(f"retained messages: {answer['count']}")
    show(f"bytes: {answer['bytes']}")


@click.command()
@click.argument("topic", callback=topic_name, required=False)
@json_lines_option
@with_access
def tree(access: Access, topic: str | None, as_json: bool) -> None:
    """List the next level of the topic tree below TOPIC, or the first level.

    A line shows the number of messages at and below a node, with + if there are more, their bytes, and the topic, with
    /# if there are topics below it.
    """
    arguments = {"limit": str(_PAGE)} if topic is None else {"topic": topic, "limit": str(_PAGE)}
    while True:
        page = access.call("GET", "/tree", arguments)
        for node in page["data"]:
            if as_json:
                show_json(node)
            else:
                show(_line(node))
        if not page["meta"]["hasnext"]:
            return
        arguments["cursor"] = page["meta"]["cursor"]


def _line(node: dict[str, Any]) -> str:
    number = f"{node['count']}{'' if node['exact'] else '+'}"
    return f"{number:>10}  {node['bytes']:>12}  {printable(node['topic'])}{'/#' if node['children'] else ''}"


# ``holdfast retainer policy``: explain which policy applies to a topic.


@click.group()
def policy() -> None:
    """Explain the policies of Topic Filters, [[retainer.policies]]."""


@policy.command()
@click.argument("topic")
@json_option
@with_access
def explain(access: Access, topic: str, as_json: bool) -> None:
    """Tell which policy applies to TOPIC, and the options that follow from it.

    With a running broker, these are the policies that it uses now; without one, those of the configuration file.
    """
    found = access.call("GET", "/policy", {"topic": topic})
    if as_json:
        show_json(found)
        return
    applied = found["policy"]
    show(
        f"{printable(topic)}: no policy matches"
        if applied is None
        else f"{printable(topic)}: policy {applied['number']}, filter {printable(applied['filter'])}"
    )
    for one in found["options"]:
        show(f"  {one['key']} = {json.dumps(one['value'])}{'' if one['by_policy'] else '  # as for all topics'}")
    for name in found["quotas"]:
        show(f"  counts for retainer.topic_quotas.{name}")
