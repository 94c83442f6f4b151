"""``holdfast dashboard``: a link that logs in at the dashboard."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.broker_options import broker_options, load_config
from holdfast.cli.failures import Failed
from holdfast.cli.reporting import json_option, show, show_json

_PATH = "/api/v5/dashboard/link"


@click.command()
@broker_options
@json_option
def dashboard(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Show a link to the dashboard of the running broker.

    The link logs in once, within 15 minutes. It gives all permissions to its holder: show it to nobody.
    """
    from holdfast.access.client import BrokerClient

    loaded = load_config(config, data_dir, storage)
    broker = BrokerClient(loaded)
    if not broker.is_there():
        raise Failed(f"no broker runs with the data in {loaded.data_dir}")
    link = broker.call("POST", _PATH)
    if as_json:
        show_json(link)
    else:
        show(link["url"])
