"""The group ``holdfast retainer``."""

from __future__ import annotations

import click

from holdfast.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    locations={
        "clean": "holdfast.cli.retainer.messages:clean",
        "count": "holdfast.cli.retainer.counting:count",
        "export": "holdfast.cli.retainer.export:export",
        "get": "holdfast.cli.retainer.messages:get",
        "history": "holdfast.cli.retainer.history:history",
        "import": "holdfast.cli.retainer.import_command:import_lines",
        "info": "holdfast.cli.retainer.messages:info",
        "orphans": "holdfast.cli.retainer.orphans:orphans",
        "policy": "holdfast.cli.retainer.policy:policy",
        "replays": "holdfast.cli.retainer.replays:replays",
        "restore": "holdfast.cli.retainer.history:restore",
        "set": "holdfast.cli.retainer.messages:set_message",
        "settings": "holdfast.cli.retainer.replays:settings",
        "topics": "holdfast.cli.retainer.messages:topics",
        "tree": "holdfast.cli.retainer.counting:tree",
    },
)
def retainer() -> None:
    """Manage the retained messages of a broker.

    The commands work with a running broker and with a stopped one; count, get, topics and tree also over the network.
    Run it as the broker's user, with the broker's options. Data goes to standard output, everything else to standard
    error.
    """
