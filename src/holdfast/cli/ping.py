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
    and 1 if not.
    """
    from holdfast.access.client import BrokerClient

    settings = load_config(config, data_dir, storage)
    if not BrokerClient(settings).answers():
        say(f"holdfast: no broker answers for {settings.data_dir}")
        raise SystemExit(ExitStatus.FAILED)
    show("the broker answers")
