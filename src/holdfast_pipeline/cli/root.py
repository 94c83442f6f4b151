"""The command line of ``holdfast-pipeline``: the list of subcommands, and the options before them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

#: Each subcommand: its module in ``commands``, which has a function of its name or NAME_, and one line of help. The
#: list avoids importing the modules, and with them Spark, for --help.
COMMANDS = {
    "archive": ("archive", "Add new changes in the history to Parquet files."),
    "asof": ("asof", "Write the messages that were retained at a time to Parquet files."),
    "audit": ("audit", "Compare the retained messages with the history."),
    "check": ("check", "Find faults in the retained messages, also by rules."),
    "compact": ("compact", "Write each complete day of an archive to one Parquet file."),
    "decode": ("decode", "Decode payloads to typed columns."),
    "export": ("export", "Write the retained messages to Parquet files."),
    "filters": ("filters", "Count the retained messages that Subscriptions to many Topic Filters would receive."),
    "import": ("imports", "Retain the messages in a file or folder."),
    "publish": ("publish", "Publish the output of other commands as a Delta table."),
    "report": ("report", "Write a page about the retained messages."),
    "rollup": ("rollup", "Keep the figures of values in payloads by minute, hour and day."),
    "run": ("run", "Run the jobs in a file, one after the other."),
    "server": ("server", "Keep a Spark process running, which saves commands its start."),
    "shapes": ("shapes", "Find the shapes of the retained topics."),
    "sync": ("sync", "Bring Delta tables in a folder up to date with the broker."),
    "tree": ("tree", "Count the retained messages below each prefix of topics."),
}


class Subcommands(click.Group):
    """Subcommands that are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"holdfast_pipeline.cli.commands.{COMMANDS[cmd_name][0]}")
        found = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])


def _script(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        click.echo(Path(__file__).with_name("script.py"))
        context.exit()


@click.group(cls=Subcommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdfast", prog_name="holdfast-pipeline", message="%(prog)s %(version)s")
@click.option(
    "--script", is_flag=True, is_eager=True, expose_value=False, callback=_script,
    help="Print the path of this command for spark-submit, and exit.",
)  # fmt: skip
def main() -> None:
    """Work with retained messages and their history in Apache Spark.

    Spark's own settings say where it runs (spark-submit, spark-defaults.conf, MASTER, SPARK_REMOTE); by default here.

    The exit status is 0 when all is done, 1 after a failure, 2 for a wrong command line, and 3 when the job is done and
    found something to examine: rejected rows, differences, failures of rules. After a signal, it is 128 plus the
    signal's number.
    """
