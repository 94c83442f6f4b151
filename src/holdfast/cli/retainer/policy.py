"""``holdfast retainer policy``: explain which policy applies to a topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from holdfast.cli.reporting import json_option, show, show_json
from holdfast.cli.retainer.access_option import with_access
from holdfast.terminal_text import printable

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access


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
