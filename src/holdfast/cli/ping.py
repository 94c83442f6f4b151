"""``holdfast ping``: tell whether a broker answers."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.broker_options import broker_options, load_config
from holdfast.cli.reporting import say, show
from holdfast.exit_status import ExitStatus


@click.command("ping")
@broker_options
def ping(config: Path | None, data_dir: str | None, storage: str | None) -> None:
    """Tell whether the broker answers.

    The command calls the control socket of the broker with these options. The exit status is 0 if the broker answers,
    and 1 if not, or if it waits for its database.
    """
    from holdfast.access.client import BrokerClient

    settings = load_config(config, data_dir, storage)
    broker = BrokerClient(settings)
    if not broker.answers():
        say(f"holdfast: no broker answers for {settings.data_dir}")
        raise SystemExit(ExitStatus.FAILED)
    closed = broker.closed_listeners()
    show("the broker answers" + (f"; these listeners do not listen yet: {', '.join(closed)}" if closed else ""))
