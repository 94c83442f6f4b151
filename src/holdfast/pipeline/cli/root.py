"""The command ``holdfast-pipeline`` and its subcommands."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

#: The subcommands: the module each is in, under its own name or NAME_, and what it does in a line. Spark is not
#: imported before one of them is run.
COMMANDS = {
    "archive": ("archive", "Add what is new in the history to Parquet files."),
    "asof": ("asof", "Write what was retained at a time to Parquet files."),
    "audit": ("audit", "Compare what is retained with what the history says."),
    "compact": ("compact", "Write each complete day of an archive to one Parquet file."),
    "decode": ("decode", "Decode payloads to typed columns."),
    "export": ("export", "Write what is retained to Parquet files."),
    "filters": ("filters", "Tell what a Subscription to each of many Topic Filters would be sent."),
    "import": ("imports", "Retain the messages in a file or folder."),
    "publish": ("publish", "Publish what other commands have written as a Delta table."),
    "report": ("report", "Write a page about what is retained."),
    "tree": ("tree", "Tell what is retained below each prefix of topics."),
}


class Subcommands(click.Group):
    """Subcommands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one of them."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"holdfast.pipeline.cli.{COMMANDS[cmd_name][0]}")
        found = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Describe them."""
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

    Spark runs where its own settings say (spark-submit, spark-defaults.conf, MASTER, SPARK_REMOTE); by default here.

    The exit status is 0 when all is done, 1 when it failed, 2 for a wrong command line, and 3 when it is done and
    found what needs to be looked into: rejected rows, or differences. Ended by a signal, it is 128 and its number.
    """
