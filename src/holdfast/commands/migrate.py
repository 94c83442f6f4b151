"""``holdfast migrate``: move in from another broker, by its configuration files; and move to another database.

Each command for another broker reads its files, and ends in the same way: what was made is checked as ``holdfast
check-config`` does, before it is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.common import Failed, broker_options, json_option, load_config, progress, say, show, show_json
from holdfast.core.terminal import counted

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.moving.mosquitto_mapping import Move


@click.group()
def migrate() -> None:
    """Move in from another broker, or to another database.

    The commands for other brokers read the files of a broker, and write a configuration, passwords, rules and a report
    into a folder. They change nothing of the other broker, and read nothing of a running one.
    """


def _outcome_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all these commands."""
    for add in (
        json_option,
        click.option("--force", is_flag=True, help="Replace files in the folder that have other content."),
        click.option("--dry-run", is_flag=True, help="Print the report, and write nothing."),
        click.option(
            "--out",
            type=click.Path(path_type=Path),
            default=Path("holdfast"),
            show_default=True,
            help="The folder for the new files. It is created with mode 0700, and its files have mode 0600.",
        ),
    ):
        command = add(command)
    return command


def _move_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the commands that move a database."""
    command = json_option(broker_options(command))
    return click.option("--dry-run", is_flag=True, help="Count the rows of the source, and write nothing.")(command)


@migrate.command()
@click.argument("conf", type=click.Path(path_type=Path))
@_outcome_options
def mosquitto(conf: Path, out: Path, dry_run: bool, force: bool, as_json: bool) -> None:
    """Move in from mosquitto 2.0 or 2.1, by its mosquitto.conf, CONF.

    The command reads the files that CONF includes, its password files, ACL files and dynamic-security.json. The report
    has three sections: the settings that are taken over, those that Holdfast has by default, and those that have no
    equal, with what to do. Bridges are in the last one. No secret is printed.

    A second run changes nothing. If files of the folder have other content, nothing is written without --force.
    """
    from holdfast.moving.mosquitto_conf import read_conf
    from holdfast.moving.mosquitto_mapping import move_mosquitto

    _finish(move_mosquitto(read_conf(conf)), out, dry_run, force, as_json)


@migrate.command()
@click.option("--passwd", type=click.Path(path_type=Path), help="The file vmq.passwd.")
@click.option("--acl", type=click.Path(path_type=Path), help="The file vmq.acl.")
@_outcome_options
def vernemq(passwd: Path | None, acl: Path | None, out: Path, dry_run: bool, force: bool, as_json: bool) -> None:
    """Move in from VerneMQ, by its files vmq.passwd and vmq.acl.

    The new configuration has one listener, on this machine only: listeners are to be written by hand.
    """
    from holdfast.moving.vernemq import move_vernemq

    if passwd is None and acl is None:
        raise click.UsageError("name --passwd, --acl or both")
    _finish(move_vernemq(passwd, acl), out, dry_run, force, as_json)


@migrate.command()
@click.argument("archive", type=click.Path(path_type=Path))
@_outcome_options
def emqx(archive: Path, out: Path, dry_run: bool, force: bool, as_json: bool) -> None:
    """Move in from EMQX 5, by an ARCHIVE of emqx ctl data export.

    The command takes the users and rules of the built-in database. The retained messages of the same archive are
    imported with holdfast retainer import. The new configuration has one listener, on this machine only: listeners are
    to be written by hand.
    """
    from holdfast.identity.hashes import read
    from holdfast.moving.emqx import PASSWORDS, move_emqx

    present = out / PASSWORDS
    hashes = read(present)[0] if present.exists() else {}
    _finish(move_emqx(archive, hashes), out, dry_run, force, as_json)


@migrate.command("home-assistant")
@click.argument("options", type=click.Path(path_type=Path))
@click.option(
    "--ssl", type=click.Path(path_type=Path), default=Path("/ssl"), show_default=True, help="The folder /ssl."
)
@click.option(
    "--share", type=click.Path(path_type=Path), default=Path("/share"), show_default=True, help="The folder /share."
)
@_outcome_options
def home_assistant(options: Path, ssl: Path, share: Path, out: Path, dry_run: bool, force: bool, as_json: bool) -> None:
    """Move in from Home Assistant's add-on Mosquitto broker, by its file /data/options.json, OPTIONS.

    The command takes the logins, the add-on's own users in system_user.json beside it, the certificates and the files
    of the customize folder. The people of Home Assistant have their passwords there only, so they are not taken.
    """
    from holdfast.identity.hashes import read
    from holdfast.moving.home_assistant import Folders, move_home_assistant

    present = out / "passwords"
    hashes = read(present)[0] if present.exists() else {}
    _finish(move_home_assistant(options, Folders(ssl, share), hashes), out, dry_run, force, as_json)


@migrate.command("sqlite-to-postgres")
@click.argument("target", metavar="URL")
@_move_options
def sqlite_to_postgres(
    target: str, dry_run: bool, as_json: bool, config: Path | None, data_dir: str | None, storage: str | None
) -> None:
    """Copy the whole database of a stopped broker into the empty Postgres database at URL.

    Everything moves: retained messages, Sessions with their messages, the history, telemetry, users and rules. The
    source is not changed. If the command is interrupted, the target stays empty: run it again. The parts of URL that
    are secrets are better in PGPASSWORD or ~/.pgpass.
    """
    _move_database(load_config(config, data_dir, storage), target, dry_run, as_json, to_postgres=True)


@migrate.command("postgres-to-sqlite")
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@_move_options
def postgres_to_sqlite(
    target: Path, dry_run: bool, as_json: bool, config: Path | None, data_dir: str | None, storage: str | None
) -> None:
    """Copy the whole Postgres database of a stopped broker into the new SQLite database FILE.

    Everything moves, as with sqlite-to-postgres. If the command is interrupted, there is no FILE: run it again.
    """
    url = f"sqlite:///{target.absolute()}"
    _move_database(load_config(config, data_dir, storage), url, dry_run, as_json, to_postgres=False)


def _move_database(config: Config, url: str, dry_run: bool, as_json: bool, *, to_postgres: bool) -> None:
    from holdfast.commands.db_work import LOCK_TIMEOUT
    from holdfast.storage.database import Durability
    from holdfast.storage.location import DirectoryLock, shown
    from holdfast.storage.maintenance import database_at
    from holdfast.storage.moving import move_database

    source = database_at(config.storage.url, Durability.FULL, 0, LOCK_TIMEOUT)
    target = database_at(url, Durability.FULL, 0, LOCK_TIMEOUT)
    makes = ("SQLite", "Postgres")
    if (source.remote, target.remote) != (not to_postgres, to_postgres):
        before, after = makes if to_postgres else makes[::-1]
        raise Failed(
            f"the configuration names {source.location}, and the target is {target.location}: allowed is {before} to"
            f" {after}; name the configuration with --config, or the source with --storage"
        )
    lock = DirectoryLock(config.data_dir)
    if config.data_dir.is_dir():  # a broker always makes its data directory
        lock.acquire()
    try:
        with progress("copying", None) as report:
            moved = move_database(source, target, config.node.id, report, dry_run)
    finally:
        lock.release()
    if as_json:
        show_json({
            "source": source.location, "target": shown(url), "dry_run": dry_run, "rows": moved.rows,
            "left_out": moved.left_out,
        })  # fmt: skip
        return
    for table, count in moved.rows.items():
        if count:
            show(f"{table}: {counted(count, 'row')}")
    for table, count in moved.left_out.items():
        show(f"{table}: {counted(count, 'row')} left out: another node has one of the same name")
    if dry_run:
        show(f"Nothing was written to {shown(url)}")
    else:
        show(f"Everything is in {shown(url)} now; set storage.url to it and start the broker. The source is unchanged")


def _finish(move: Move, out: Path, dry_run: bool, force: bool, as_json: bool) -> None:
    """Check the files, write them, and print the report."""
    from holdfast.moving.files import Differs, write_all

    _check(move)
    written: list[str] = []
    if not dry_run:
        try:
            written = write_all(out, move.files, replaces=force)
        except Differs as differs:
            raise Failed(f"{differs}; nothing was written: use another folder, or --force to replace them") from None
    if as_json:
        show_json({
            "folder": str(out),
            "dry_run": dry_run,
            "written": written,
            **move.report.counts(),
            "entries": [
                {"outcome": each.outcome.name.lower(), "origin": each.origin, "setting": each.setting,
                 "remark": each.remark}
                for each in move.report.entries
            ],
        })  # fmt: skip
        return
    for line in move.report.lines():
        show(line)
    folder = click.format_filename(out)
    if dry_run:
        show(f"Nothing was written to {folder}: {', '.join(move.files)}")
    elif written:
        show(f"Written to {folder}: {', '.join(written)}")
        show(f"Start the broker with: holdfast run --config {folder}/holdfast.toml")
    else:
        show(f"Everything in {folder} is so already")


def _check(move: Move) -> None:
    """Raise Failed if a broker could not start with the new files."""
    from holdfast.commands.config import problems_of
    from holdfast.moving.files import write_all
    from holdfast.moving.mosquitto_mapping import CONFIG

    with tempfile.TemporaryDirectory(prefix="holdfast-migrate-") as folder:
        write_all(Path(folder), move.files, replaces=True)
        problems, _, _ = problems_of(Path(folder) / CONFIG, allow_anonymous=False)
        if not problems:
            return
        for problem in problems:
            say(str(problem).replace(f"{folder}/", ""))
    raise Failed(
        "the broker could not start with these files, so nothing was written; correct the files of the other broker"
    )
