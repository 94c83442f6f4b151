"""``holdfast check-config``: print all problems of a configuration file."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import click

from holdfast.auth.users_file import UsersFile
from holdfast.config import ConfigError, ConfigProblem, load


@click.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object on standard output instead of lines.")
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Accept listeners that other machines can reach although no authentication is configured.",
)
@click.pass_context
def check_config(context: click.Context, file: Path, as_json: bool, allow_anonymous: bool) -> None:
    """Check a configuration file, and report all its problems as FILE:LINE: KEY: message.

    If a file of SCRAM users is configured, it is checked too.

    The exit status is 0 if there are no problems, else 1.
    """
    problems: tuple[ConfigProblem, ...] = ()
    try:
        config = load(file, allow_anonymous=allow_anonymous)
        if config.scram_file is not None:
            UsersFile(config.scram_file)
    except ConfigError as error:
        problems = error.problems
    if as_json:
        report = {"ok": not problems, "problems": [attrs.asdict(problem) for problem in problems]}
        click.echo(json.dumps(report, indent=2))
    elif problems:
        for problem in problems:
            click.echo(str(problem), err=True)
    else:
        click.echo(f"{click.format_filename(file)}: ok")
    context.exit(1 if problems else 0)
