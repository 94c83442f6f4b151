"""``holdfast run``: starts the broker as ``twistd -n --pidfile= holdfast`` does, where twistd cannot find the plugin.

Twistd looks for the plugin in folders ``twisted/plugins`` on Python's path. A plain ``pip install -e`` puts no
such folder there (see CONTRIBUTING.md). This command hands the plugin to twistd's own code, so that options, log,
printed lines, signals and exit statuses are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.reporting import say
from holdfast.exit_status import ExitStatus

if TYPE_CHECKING:
    from holdfast.tap import Options

#: Options that end the command with an answer.
_ASKING = {"-h", "--help", "--version"}


@click.command(
    add_help_option=False,  # the options, and their help, are those of holdfast.tap.Options
    context_settings={"ignore_unknown_options": True},
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def run(options: tuple[str, ...]) -> None:
    """Start the broker, with the options of twistd holdfast."""
    from twisted.python.usage import UsageError

    from holdfast.tap import Options

    class BrokerOptions(Options):
        """The broker's options, with the usage of this command."""

        opt_h = Options.opt_help

        def getSynopsis(self) -> str:
            return "Usage: holdfast run [options]"

    try:
        if _ASKING & set(options):
            BrokerOptions().parseOptions(options)  # type: ignore[no-untyped-call]  # answers, and ends the process
        _start(BrokerOptions, options)
    except UsageError as error:
        say(f"holdfast run: {error}")
        raise SystemExit(ExitStatus.USAGE) from None


def _start(broker_options: type[Options], options: tuple[str, ...]) -> None:
    """Run twistd's own code with the broker as the only plugin. Raises UsageError."""
    from twisted.application.service import ServiceMaker
    from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

    class TwistdOptions(ServerOptions):
        """The options of twistd."""

        loadedPlugins = {"holdfast": ServiceMaker("Holdfast", "holdfast.tap", "", "holdfast")}
        subCommands = [("holdfast", None, broker_options, "")]

    config: Any = TwistdOptions()  # type: ignore[no-untyped-call]
    config.parseOptions(["--nodaemon", "--pidfile=", "holdfast", *options])
    runApp(config)
