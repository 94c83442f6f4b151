"""``holdfast check-config``, ``config reference`` and ``reload``: the configuration file."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.common import Failed, broker_options, json_option, load_config, say, show, show_json
from holdfast.core.terminal import ExitStatus

if TYPE_CHECKING:
    from holdfast.config import ConfigProblem


# ``holdfast check-config``: print all problems of a configuration file.


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
    problems, warnings, status = problems_of(file, allow_anonymous)
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


def problems_of(
    file: Path, allow_anonymous: bool
) -> tuple[tuple[ConfigProblem, ...], tuple[ConfigProblem, ...], ExitStatus]:
    """Return all problems, the warnings, and the exit status that they mean."""
    from holdfast.config import ConfigError, load
    from holdfast.config.document import cluster_without_postgres
    from holdfast.config.toml import FileUnreadable
    from holdfast.identity import hashes as passwords
    from holdfast.identity.rule_sources import compiled, read_sources
    from holdfast.identity.scram import UsersFile

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
        from holdfast.transports.tls_reloading import check_files

        checks.append(partial(check_files, config, time.time()))
    problems = cluster_without_postgres(config)
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems += error.problems
    return tuple(problems), config.ignored, ExitStatus.FOUND if problems else ExitStatus.DONE


# ``holdfast config reference``: print every option of the configuration file.


@click.group()
def config() -> None:
    """Learn about the configuration file."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON, an object for each option.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["toml", "markdown"]),
    default="toml",
    show_default=True,
    help="toml: a file to start from. markdown: the page of the documentation.",
)
def reference(form: str, as_json: bool) -> None:
    """Print every option with its default, its allowed values and its effect."""
    from holdfast.config.reference import described_options, render_markdown, render_toml

    if as_json:
        for option in described_options():
            show_json(option)
        return
    click.echo(render_toml() if form == "toml" else render_markdown(), nl=False)


# ``holdfast reload``: put a changed configuration into effect in the running broker.


@click.command()
@broker_options
@json_option
def reload(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Reload the configuration of the running broker.

    The broker reads its configuration again, and all files that it names. Everything that can change while it runs
    takes effect at once, or nothing if there is a problem. The command prints the differences, and the options that
    need a restart. The broker reads the file that it was started with: --config and --data-dir only select the broker.

    The exit status is 0 if the configuration is in effect, 3 if there are problems and nothing was changed, and 1 if no
    broker runs.
    """
    from holdfast.broker.reloading import lines
    from holdfast.commands.access import reload_broker
    from holdfast.config import ConfigError
    from holdfast.config.toml import FileUnreadable

    try:
        loaded = load_config(config, data_dir, storage)
    except FileUnreadable as error:
        raise Failed(str(error)) from None
    except ConfigError as error:  # the broker would say the same
        outcome = {"problems": [str(problem) for problem in error.problems]}
    else:
        outcome = reload_broker(loaded)
    if as_json:
        show_json({name: value for name, value in outcome.items() if name not in ("code", "message")})
    else:
        for line in lines(outcome):
            (say if outcome["problems"] else show)(line)
    if outcome["problems"]:
        raise SystemExit(ExitStatus.FOUND)
