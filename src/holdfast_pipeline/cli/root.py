"""The command line of ``holdfast-pipeline``: the list of subcommands, and the options before them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

#: Commands of earlier versions, and what does their work now.
_FORMER = {
    "archive": "holdfast-pipeline sync --to LAKE --confirm keeps all changes",
    "audit": "holdfast doctor --deep compares the retained messages with the history",
    "compact": "holdfast-pipeline sync joins the files of each day",
    "export": "holdfast-pipeline asof --out DIR, without a time, writes the present messages",
    "filters": "holdfast-pipeline report --only filters --filters FILE",
    "publish": "holdfast-pipeline sync --to LAKE keeps Delta tables, and asof --format delta writes one",
    "shapes": "holdfast-pipeline report --only shapes",
    "tree": "holdfast-pipeline report --only tree",
}

#: Each subcommand: its module in ``commands``, which has a function of its name or NAME_, and one line of help. The
#: list avoids importing the modules, and with them Spark, for --help.
COMMANDS = {
    "asof": ("asof", "Write the retained messages to files; with TIME, those retained then."),
    "check": ("check", "Find faults in the retained messages, also by rules."),
    "decode": ("decode", "Decode payloads to typed columns."),
    "import": ("imports", "Retain the messages in a file or folder."),
    "report": ("report", "Write a page about the retained messages."),
    "rollup": ("rollup", "Keep the figures of values in payloads by minute, hour and day."),
    "run": ("run", "Run the jobs in a file, one after the other."),
    "sample": ("sample", "Write a database to try the pipeline with, and the faults in it."),
    "server": ("server", "Keep a Spark process running, which saves commands its start."),
    "sync": ("sync", "Bring tables in a folder up to date with the broker."),
}


class Subcommands(click.Group):
    """Subcommands that are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand. One of an earlier version ends with a message that names its successor."""
        if cmd_name in _FORMER:
            raise click.UsageError(f"{cmd_name} is no command any more: {_FORMER[cmd_name]}", ctx)
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
