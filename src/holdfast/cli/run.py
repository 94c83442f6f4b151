"""``holdfast run``: starts the broker as ``twistd -n --pidfile= holdfast`` does, where twistd cannot find the plugin.

Twistd looks for the plugin in folders ``twisted/plugins`` on Python's path. A plain ``pip install -e`` puts no
such folder there (see CONTRIBUTING.md). This command hands the plugin to twistd's own code, so that options, log,
printed lines, signals and exit statuses are the same.
"""

from __future__ import annotations

import sys
from typing import Any

import click


@click.command(
    add_help_option=False,  # the options, and their help, are those of holdfast.tap.Options
    context_settings={"ignore_unknown_options": True},
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def run(options: tuple[str, ...]) -> None:
    """Start the broker, with the options of twistd holdfast."""
    from twisted.application.service import ServiceMaker
    from twisted.python.usage import UsageError
    from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

    from holdfast.tap import Options

    class BrokerOptions(Options):
        """The broker's options, with the usage of this command."""

        opt_h = Options.opt_help

        def getSynopsis(self) -> str:
            return "Usage: holdfast run [options]"

    class TwistdOptions(ServerOptions):
        """The options of twistd, with the broker as the only plugin."""

        loadedPlugins = {"holdfast": ServiceMaker("Holdfast", "holdfast.tap", "", "holdfast")}
        subCommands = [("holdfast", None, BrokerOptions, "")]

    config: Any = TwistdOptions()  # type: ignore[no-untyped-call]
    try:
        config.parseOptions(["--nodaemon", "--pidfile=", "holdfast", *options])
    except UsageError as error:
        click.echo(f"holdfast run: {error}", err=True)
        sys.exit(1)  # as twistd does
    runApp(config)
