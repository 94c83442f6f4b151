"""The group ``holdfast retainer``."""

from __future__ import annotations

import click

from holdfast.commands.root import LazyGroup


@click.group(
    cls=LazyGroup,
    locations={
        "clean": "holdfast.commands.retainer_messages:clean",
        "count": "holdfast.commands.retainer_messages:count",
        "export": "holdfast.commands.retainer_messages:export",
        "get": "holdfast.commands.retainer_messages:get",
        "history": "holdfast.commands.retainer_history:history",
        "import": "holdfast.commands.retainer_import:import_file",
        "info": "holdfast.commands.retainer_messages:info",
        "orphans": "holdfast.commands.retainer_replays:orphans",
        "policy": "holdfast.commands.retainer_messages:policy",
        "replays": "holdfast.commands.retainer_replays:replays",
        "restore": "holdfast.commands.retainer_history:restore",
        "set": "holdfast.commands.retainer_messages:set_message",
        "settings": "holdfast.commands.retainer_replays:settings",
        "telemetry": "holdfast.commands.retainer_history:telemetry",
        "topics": "holdfast.commands.retainer_messages:topics",
        "tree": "holdfast.commands.retainer_messages:tree",
    },
)
def retainer() -> None:
    """Manage the retained messages of a broker.

    The commands work with a running broker and with a stopped one; count, get, topics and tree also over the network.
    Run it as the broker's user, with the broker's options. Data goes to standard output, everything else to standard
    error.
    """
