"""``holdfast retainer count`` and ``tree``: how many messages there are, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.reporting import json_lines_option, json_option, show, show_json
from holdfast.cli.retainer.remote_option import with_access_or_url
from holdfast.cli.topic_values import topic_filter, topic_name
from holdfast.terminal_text import printable

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access

#: nodes that one call lists
_PAGE = 200


@click.command()
@click.argument("topic_filter", metavar="[FILTER]", callback=topic_filter, required=False)
@json_option
@with_access_or_url
def count(access: Access, topic_filter: str | None, as_json: bool) -> None:
    """Count the retained messages whose topics match FILTER, and their bytes.

    With --url, only messages that the user may receive are counted; without FILTER, none whose topic begins with $.
    """
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
@with_access_or_url
def tree(access: Access, topic: str | None, as_json: bool) -> None:
    """List the next level of the topic tree below TOPIC, or the first level.

    A line shows the number of messages at and below a node, with + if there are more, their bytes, and the topic, with
    /# if there are topics below it. With --url, only what the user may receive is shown and counted.
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
