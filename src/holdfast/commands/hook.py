"""``holdfast hook``: the servers that the running broker tells of events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast.commands.common import Failed, broker_options, json_lines_option, load_config, show, show_json
from holdfast.commands.root import LazyGroup
from holdfast.core.terminal import printable

_PATH = "/api/v5/hooks"


@click.group(cls=LazyGroup, locations={"list": "holdfast.commands.hook:list_hooks"})
def hook() -> None:
    """List the hooks of the running broker, with what they have delivered."""


@click.command()
@broker_options
@json_lines_option
def list_hooks(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the hooks.

    waiting: there are no events. sending: a request waits for its answer. failing: a request is repeated. elsewhere:
    another node delivers the changes of retained messages.
    """
    from holdfast.commands.access import BrokerClient

    settings = load_config(config, data_dir, storage)
    if not settings.hooks:
        if not as_json:
            show("no hooks are configured: see [[hooks]] in the configuration file")
        return
    broker = BrokerClient(settings)
    if not broker.answers():
        raise Failed(f"no broker answers for {settings.data_dir}: only a running broker has hooks")
    for found in broker.call("GET", _PATH)["data"]:
        if as_json:
            show_json(found)
        else:
            show(_text(found))


def _text(found: dict[str, Any]) -> str:
    states = ", ".join(f"{lane} {state}" for lane, state in found["state"].items())
    text = f"{found['name']} to {found['server']}: {states}; {found['delivered_events']} events delivered"
    if found["dead_events"]:
        text += f", {found['dead_events']} given up"
    if found["failing_since"]:
        text += f"; fails since {found['failing_since']}: {printable(found['last_error'] or '')}"
    return text
