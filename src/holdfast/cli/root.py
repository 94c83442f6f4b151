"""The command ``holdfast``: its version and its subcommands."""

from __future__ import annotations

import io
import sys

import click

from holdfast.cli.lazy_group import LazyGroup


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from holdfast.version import version

    click.echo(f"holdfast {version()}")
    context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    locations={
        "acl": "holdfast.cli.accounts.acl:acl",
        "api-key": "holdfast.cli.accounts.api_key:api_key",
        "ban": "holdfast.cli.accounts.ban:ban",
        "check-config": "holdfast.cli.check_config:check_config",
        "config": "holdfast.cli.config_reference:config",
        "dashboard": "holdfast.cli.dashboard:dashboard",
        "db": "holdfast.cli.database.group:db",
        "passwd": "holdfast.cli.accounts.passwd:passwd",
        "doctor": "holdfast.cli.doctor:doctor",
        "ping": "holdfast.cli.ping:ping",
        "reload": "holdfast.cli.reload:reload",
        "retainer": "holdfast.cli.retainer.group:retainer",
        "run": "holdfast.cli.run:run",
        "scram": "holdfast.cli.accounts.scram:scram",
        "trace": "holdfast.cli.trace:trace",
        "user": "holdfast.cli.accounts.user:user",
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Run and manage a Holdfast broker."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name that the terminal cannot show must not stop a message
            stream.reconfigure(errors="backslashreplace")
