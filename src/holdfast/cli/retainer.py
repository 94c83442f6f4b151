"""``holdfast retainer``: look after the retained messages of a broker."""

from __future__ import annotations

import json
import os
import stat
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from pathlib import Path
from typing import IO, Any

import click

from holdfast.access.interfaces import Access, Inaccessible
from holdfast.access.opening import access_to
from holdfast.cli.broker_options import configured, place, refuse
from holdfast.cli.importing import Import
from holdfast.cli.progress import progress
from holdfast.cli.time_option import at_option
from holdfast.config import ConfigError
from holdfast.retained.importing.verdicts import Merge
from holdfast.storage.database import StoreUnusable
from holdfast.storage.lock import DirectoryUnusable

#: Messages listed or cleared by one call.
_PAGE = 1000
_CLEARED = 5000
_NEWLINE = ord("\n")


@click.group()
def retainer() -> None:
    """Look after the retained messages of a broker, whether it runs or not.

    Run it as the broker's user, with the broker's options. Data goes to standard output, everything else to standard
    error.
    """


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command access to the messages as its first argument, and tell what goes wrong in one line."""

    def run(
        context: click.Context, config: Path | None, data_dir: str | None, storage: str | None, **options: Any
    ) -> None:
        try:
            with access_to(configured(config, data_dir, storage)) as access:
                command(access, **options)
        except (ConfigError, DirectoryUnusable, StoreUnusable, Inaccessible) as error:
            refuse(context, error)
        except BrokenPipeError:  # whoever reads this has seen enough
            sys.stdout = None  # else Python complains when it ends
            context.exit(1)
        except OSError as error:
            refuse(context, Inaccessible(f"{error.filename or 'a file'}: {error.strerror}"))

    update_wrapper(run, command)
    return place(click.pass_context(run))


@retainer.command()
@with_access
def info(access: Access) -> None:
    """Say how many messages are retained, and where."""
    told = access.call("GET", "/info")
    click.echo(f"retained messages: {told['count']}")
    click.echo(f"bytes of payload: {told['payload_bytes']}")
    click.echo(f"replays running: {told['replays']}")
    click.echo(f"store: {told['store']}")
    if told.get("damage") is not None:
        click.echo(f"DAMAGED, nothing is stored any more: {told['damage']}")
    for name in told.get("quarantined", ()):
        click.echo(f"a damaged database lies in quarantine beside it: {name}")


@retainer.command()
@click.argument("topic_filter", metavar="[FILTER]", required=False)
@at_option
@with_access
def topics(access: Access, topic_filter: str | None, at: int | None) -> None:
    """List the topics that have a retained message, all or those matching FILTER, one a line in their order."""
    for entry in _listed(access, _chosen(topic_filter, at)):
        click.echo(entry["topic"], color=True)  # as it is, also what looks like a terminal's colours


@retainer.command()
@click.argument("topic")
@click.option("--payload", is_flag=True, help="Print the payload alone, byte for byte.")
@at_option
@with_access
def get(access: Access, topic: str, payload: bool, at: int | None) -> None:
    """Print the message retained for TOPIC, as a line of an export. The exit status is 1 if there is none."""
    if "+" in topic or "#" in topic:
        raise Inaccessible(f"{topic}: is a filter; name one topic, or use: holdfast retainer export --topic")
    record = b"".join(access.pieces("/export", _chosen(topic, at)))
    if not record:
        raise Inaccessible(f"{topic}: nothing {'is' if at is None else 'was'} retained")
    out = sys.stdout.buffer
    out.write(b64decode(json.loads(record)["payload"]) if payload else record)
    out.flush()


@retainer.command("set")
@click.argument("topic")
@click.argument("payload", required=False)
@click.option("--file", type=click.File("rb"), help="Take the payload from this file; - is standard input.")
@click.option("--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="Its Quality of Service.")
@click.option("--expiry", type=click.IntRange(0, 0xFFFFFFFF), help="Seconds until it expires.")
@click.option("--content-type", help="What the payload is, for clients of MQTT 5.")
@click.option("--user-property", metavar="NAME=VALUE", multiple=True, help="A User Property; may be given again.")
@with_access
def set_message(
    access: Access, topic: str, payload: str | None, file: IO[bytes] | None, qos: int, expiry: int | None,
    content_type: str | None, user_property: tuple[str, ...],
) -> None:  # fmt: skip
    """Retain PAYLOAD for TOPIC. Present subscribers are not sent it; new ones are."""
    if (payload is None) == (file is None):
        raise click.UsageError("Give a PAYLOAD, or --file.")
    properties: dict[str, Any] = {}
    if expiry is not None:
        properties["message_expiry_interval"] = expiry
    if content_type is not None:
        properties["content_type"] = content_type
    if user_property:
        properties["user_properties"] = [list(_pair(text)) for text in user_property]
    data = file.read() if file is not None else os.fsencode(payload or "")
    request = {
        "topic": topic, "payload": b64encode(data).decode(), "payload_encoding": "base64", "qos": qos,
        "properties": properties,
    }  # fmt: skip
    access.call("POST", "/messages", body=json.dumps(request).encode())


@retainer.command()
@click.argument("topic_filter", metavar="FILTER")
@click.option("--dry-run", is_flag=True, help="Clear nothing, and say how many would be.")
@with_access
def clean(access: Access, topic_filter: str, dry_run: bool) -> None:
    """Clear the retained messages of all topics that match FILTER. What is published meanwhile stays.

    As in MQTT, # does not match topics that begin with $: clear those by $NAME/#.
    """
    count = 0
    arguments = {"topic": topic_filter, "dry_run": "true" if dry_run else "false", "limit": str(_CLEARED)}
    with progress("counting" if dry_run else "clearing", None) as report:
        while True:
            told = access.call("DELETE", "/messages", arguments)
            count += told["count"]
            report(count)
            if not told["meta"]["hasnext"]:
                break
            arguments["cursor"] = told["meta"]["cursor"]
    click.echo(f"{count} would be cleared" if dry_run else f"{count} cleared")


@retainer.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), default="-")
@click.option("--topic", "topic_filter", metavar="FILTER", help="Only topics that match.")
@at_option
@with_access
def export(access: Access, file: Path, topic_filter: str | None, at: int | None) -> None:
    """Write the retained messages to FILE (standard output by default) as lines of JSON, in the order of topics.

    Each message is as it is when its turn comes. FILE is there under its name when it is complete.
    """
    count = 0
    arguments = _chosen(topic_filter, at)
    total = None if arguments else access.call("GET", "/info")["count"]
    with _written(file) as out, progress("exporting", total) as report:
        for piece in access.pieces("/export", arguments):
            out.write(piece)
            count += piece.count(_NEWLINE)
            report(count)
    click.echo(f"{count} exported", err=True)


@retainer.command("import")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--merge",
    type=click.Choice([one.value for one in Merge]),
    default=Merge.NEWER.value,
    show_default=True,
    help="Of a topic that has a message: newer: the later one prevails, also if it was a clear. replace: the imported "
    "one. keep: the one that is there.",
)
@click.option("--rejects", type=click.Path(dir_okay=False, path_type=Path), help="Write lines that were refused here.")
@with_access
def import_lines(access: Access, file: IO[bytes], merge: str, rejects: Path | None) -> None:
    """Import retained messages from FILE (- is standard input), lines as written by export.

    Importing the same file again changes nothing. The exit status is 1 if lines were refused.
    """
    with _rejects(rejects) as refused:
        one = Import(access, merge, refused)
        with progress("importing", _size(file), in_bytes=True) as report:
            one.run(file, report)
    click.echo(", ".join(f"{count} {verdict}" for verdict, count in one.counts.items()), err=True)
    if one.counts["cleared"] and merge == Merge.NEWER.value:
        click.echo("cleared since they were exported: to bring these back, use --merge replace or keep", err=True)
    for reason in one.reasons:
        click.echo(reason, err=True)
    if one.rejected:
        where = f"; see {click.format_filename(rejects)}" if rejects is not None else "; --rejects FILE keeps them"
        raise Inaccessible(f"{one.rejected} lines were refused{where}")


def _listed(access: Access, chosen: dict[str, str]) -> Iterator[dict[str, Any]]:
    arguments = {"limit": str(_PAGE), **chosen}
    while True:
        page = access.call("GET", "/messages", arguments)
        yield from page["data"]
        if not page["meta"]["hasnext"]:
            return
        arguments["cursor"] = page["meta"]["cursor"]


def _chosen(topic_filter: str | None, at: int | None) -> dict[str, str]:
    """Return the arguments that say which messages are meant."""
    arguments = {} if topic_filter is None else {"topic": topic_filter}
    return arguments if at is None else {**arguments, "at": str(at)}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"Write a User Property as NAME=VALUE, not {text!r}.")
    return name, value


@contextmanager
def _written(file: Path) -> Iterator[IO[bytes]]:
    """Give a file to write, that takes its place when it is complete."""
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


@contextmanager
def _rejects(path: Path | None) -> Iterator[IO[str] | None]:
    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8") as file:
        yield file


def _size(file: IO[bytes]) -> int | None:
    """Return the bytes of a file, None if it is not a regular one."""
    try:
        found = os.fstat(file.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
