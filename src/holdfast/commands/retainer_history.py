"""``holdfast retainer history``, ``telemetry`` and ``restore``: list changes and messages, and undo changes."""

from __future__ import annotations

import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.commands.common import Failed, Report, json_option, moment, progress, say, show, show_json, topic_filter
from holdfast.commands.interfaces import Inaccessible
from holdfast.commands.retainer_access import say_left_out, with_access
from holdfast.core.terminal import ExitStatus

if TYPE_CHECKING:
    from holdfast.commands.interfaces import Access

#: changes that one call lists
_PAGE = 1000
#: characters of a text payload that are shown, and bytes of any other payload
_SHOWN = 60
_SHOWN_BYTES = 20

#: The report of a restore, in this order: the name of a count, and its words in a dry run and after the restore.
_WORDS = (
    ("restored", "would be restored", "restored"),
    ("cleared", "would be cleared", "cleared"),
    ("unchanged", "still have the same message", "still had the same message"),
    ("kept", "had no message then and stay (--clear clears them)", "had no message then and stay"),
    ("expired", "have expired since", "had expired since"),
    ("changed", "have been changed meanwhile and stay", "were changed meanwhile and stay"),
)


def _listing(thing: str, received: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the arguments of a list by time: of each ``change``, or of each ``message``."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        for add in reversed((
            click.argument("topic_filter", metavar="[FILTER]", callback=topic_filter, required=False),
            click.option(
                "--since", metavar="TIME", callback=moment,
                help=f"List {thing}s{received} from this time on: 2026-11-21T10:00:00Z, or an age such as 90m.",
            ),
            click.option("--until", metavar="TIME", callback=moment, help=f"List {thing}s{received} up to this time."),
            click.option("--limit", type=click.IntRange(1), help=f"List at most this many {thing}s; all by default."),
            click.option("--oldest-first", is_flag=True, help=f"Begin with the oldest {thing} instead of the newest."),
            click.option(
                "--json", "as_json", is_flag=True,
                help="Print lines of JSON, with the payload in base64 (up to 1 MB).",
            ),
        )):  # fmt: skip
            function = add(function)
        return function

    return decorated


@click.command()
@_listing("change")
@with_access
def history(
    access: Access, topic_filter: str | None, since: int | None, until: int | None, limit: int | None,
    oldest_first: bool, as_json: bool,
) -> None:  # fmt: skip
    """List changes of retained messages, the newest first. With FILTER, list only changes of matching topics.

    A line shows the time (UTC), the kind and the origin of the change, the client and its user, the topic, QoS, bytes,
    and the beginning of the payload. The broker keeps the history if retainer.history.enable is true.
    """
    for event in _records(access, "/history", topic_filter, since, until, limit, oldest_first):
        if as_json:
            show_json(event)
        else:
            show(_line(event))


@click.command()
@_listing("message", " received")
@with_access
def telemetry(
    access: Access, topic_filter: str | None, since: int | None, until: int | None, limit: int | None,
    oldest_first: bool, as_json: bool,
) -> None:  # fmt: skip
    """List recorded messages without RETAIN, the newest first. With FILTER, list only those of matching topics.

    A line shows the time (UTC), the client and its user, the topic, QoS, bytes, and the beginning of the payload. The
    broker records the messages of policies with record = "all".
    """
    for message in _records(access, "/telemetry", topic_filter, since, until, limit, oldest_first):
        if as_json:
            show_json(message)
        else:
            show(f"{message['received_at']}  {_publisher(message)}  {message['topic']}  {_content(message)}")


@click.command()
@click.argument("topic_filter", metavar="FILTER", callback=topic_filter)
@click.option(
    "--at",
    metavar="TIME",
    callback=moment,
    required=True,
    help="The time: 2026-11-21T10:00:00Z, or an age such as 90m.",
)
@click.option("--clear", is_flag=True, help="Also clear topics that had no retained message then.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and print the changes that a restore would make.")
@click.option("--yes", is_flag=True, help="Restore without asking.")
@json_option
@with_access
def restore(access: Access, topic_filter: str, at: int, clear: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Restore the messages that were retained at a time.

    The command restores the topics that match FILTER. A running broker sends the restored messages to present
    subscribers like any other message. Topics that had no message at that time stay unchanged, unless --clear is given.
    The command may be repeated: it skips topics that are already restored. The exit status is 3 if some topics could
    not be restored.
    """
    arguments = {"topic": topic_filter, "at": str(at), "clear": "true" if clear else "false"}
    total = None
    if dry_run or not yes:
        with progress("comparing", None) as report:
            counts, then = _restore(access, {**arguments, "dry_run": "true"}, report)
        total = sum(counts.values())
        words = _described(counts, 1)
        if dry_run:
            _report(counts, then, 1, as_json)
            return
        say(f"as of {then}: {words}")
        if not counts["restored"] + counts["cleared"]:
            if as_json:
                _report(counts, then, 2, as_json)
            return
        if not sys.stdin.isatty():
            raise Failed("nothing was changed: give --yes to restore without a question")
        click.confirm("Continue?", abort=True, err=True)
    with progress("restoring", total) as report:
        counts, then = _restore(access, arguments, report)
    _report(counts, then, 2, as_json)
    if counts["refused"]:
        say(f"{counts['refused']} could not be restored: {next(iter(counts.reasons))}")
        raise SystemExit(ExitStatus.FOUND)


class _Counts(Counter[str]):
    """Counts of topics by outcome, the reasons of refusals, and the Topic Filters that the history does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, None] = {}
        self.left_out: dict[str, None] = {}


def _restore(access: Access, arguments: dict[str, str], report: Report) -> tuple[_Counts, str]:
    """Restore part by part; return the counts and the time."""
    counts = _Counts()
    arguments = dict(arguments)
    while True:
        try:
            answer = access.call("POST", "/restore", arguments)
        except (KeyboardInterrupt, Inaccessible):
            if counts["restored"] + counts["cleared"] and "dry_run" not in arguments:
                say(f"done until then: {_described(counts, 2)}; repeat the command to continue")
            raise
        for name in (*(name for name, _, _ in _WORDS), "refused"):
            counts[name] += answer[name]
        if answer["reason"] is not None:
            counts.reasons[answer["reason"]] = None
        counts.left_out |= dict.fromkeys(answer["left_out"])
        report(sum(counts.values()))
        if not answer["meta"]["hasnext"]:
            return counts, answer["at"]
        arguments["cursor"] = answer["meta"]["cursor"]


def _report(counts: _Counts, then: str, column: int, as_json: bool) -> None:
    if as_json:
        outcomes = {name: counts[name] for name in (*(name for name, _, _ in _WORDS), "refused")}
        show_json({"at": then, **outcomes, "reasons": list(counts.reasons), "left_out": list(counts.left_out)})
    else:
        show(_described(counts, column))
    say_left_out(counts.left_out)


def _described(counts: _Counts, column: int) -> str:
    """Describe the counts. Counts of 0 are left out, except the first."""
    described = [(counts[words[0]], words[column]) for words in _WORDS]
    return ", ".join(f"{count} {words}" for index, (count, words) in enumerate(described) if count or not index)


def _records(
    access: Access,
    path: str,
    topic_filter: str | None,
    since: int | None,
    until: int | None,
    limit: int | None,
    oldest_first: bool,
) -> Iterator[dict[str, Any]]:
    """Yield what a list of the API has, page by page."""
    arguments = {"first": "oldest" if oldest_first else "newest"}
    if topic_filter is not None:
        arguments["topic"] = topic_filter
    if since is not None:
        arguments["since"] = str(since)
    if until is not None:
        arguments["until"] = str(until)
    left = limit
    while left is None or left:
        page = access.call("GET", path, {**arguments, "limit": str(min(_PAGE, left or _PAGE))})
        yield from page["data"]
        if not page["meta"]["hasnext"]:
            return
        left = None if left is None else left - len(page["data"])
        arguments["cursor"] = page["meta"]["cursor"]


def _line(event: dict[str, Any]) -> str:
    line = f"{event['changed_at']}  {event['op']:<6}  {event['origin']:<8}  {_publisher(event)}  {event['topic']}"
    return line if event["op"] != "set" else f"{line}  {_content(event)}"


def _publisher(record: dict[str, Any]) -> str:
    who, operator = record["from_clientid"] or "-", record.get("operator")
    # An operator's clear has the operator as its user, too.
    if record["from_username"] and (record["from_clientid"] or not operator):
        who += f" ({record['from_username']})"
    return f"{who} (operator {operator})" if operator else who


def _content(record: dict[str, Any]) -> str:
    return f"qos {record['qos']}, {record['size']} bytes: {_preview(record.get('payload'))}"


def _preview(payload: str | None) -> str:
    if payload is None:
        return "(too large to be shown)"
    data = b64decode(payload)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data[:_SHOWN_BYTES].hex()}{'...' if len(data) > _SHOWN_BYTES else ''}"
    return text[:_SHOWN] + ("..." if len(text) > _SHOWN else "")
