"""``holdfast check-config``: print all problems of a configuration file."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.reporting import say, show, show_json
from holdfast.exit_status import ExitStatus

if TYPE_CHECKING:
    from holdfast.config import ConfigProblem


@click.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object on standard output instead of lines.")
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Accept listeners that other machines can reach although no authentication is configured.",
)
def check_config(file: Path, as_json: bool, allow_anonymous: bool) -> None:
    """Check a configuration file, and report all its problems.

    Each problem is a line FILE:LINE: KEY: message. The files of users, certificates and rules that the configuration
    names are checked too. Keys of EMQX that are ignored here are warnings: lines alike, without effect on the status.

    The exit status is 0 if there are no problems, 3 if there are some, and 1 if FILE cannot be read.
    """
    problems, warnings, status = _problems(file, allow_anonymous)
    if as_json:
        from attrs import asdict

        show_json({
            "ok": not problems,
            "problems": [asdict(problem) for problem in problems],
            "warnings": [asdict(warning) for warning in warnings],
        })  # fmt: skip
        raise SystemExit(status)
    for problem in (*problems, *warnings):
        say(str(problem))
    if not problems:
        show(f"{click.format_filename(file)}: ok")
    raise SystemExit(status)


def _problems(
    file: Path, allow_anonymous: bool
) -> tuple[tuple[ConfigProblem, ...], tuple[ConfigProblem, ...], ExitStatus]:
    """Return all problems, the warnings, and the exit status that they mean."""
    from holdfast.auth.passwords import users as passwords
    from holdfast.auth.scram.users_file import UsersFile
    from holdfast.authorization.sources.loading import compiled, read_sources
    from holdfast.config import ConfigError, load
    from holdfast.config.problems import FileUnreadable

    try:
        config = load(file, allow_anonymous=allow_anonymous)
    except FileUnreadable as error:
        return error.problems, (), ExitStatus.FAILED
    except ConfigError as error:
        return error.problems, (), ExitStatus.FOUND
    checks: list[Callable[[], object]] = [
        *(partial(UsersFile, config.absolute(path)) for path in config.authentication.scram_files),
        *(partial(passwords.read, config.absolute(path)) for path in config.authentication.password_files),
        lambda: compiled(read_sources(config), ()),  # rules in the database are checked when they are added
    ]
    if config.admin.tls is not None or any(listener.tls is not None for listener in config.listeners.values()):
        from holdfast.transports.tls.configured import check_files

        checks.append(partial(check_files, config, time.time()))
    problems: list[ConfigProblem] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems += error.problems
    return tuple(problems), config.ignored, ExitStatus.FOUND if problems else ExitStatus.DONE
