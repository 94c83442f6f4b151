"""``holdfast node``: the members of the cluster on this broker's database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.commands.common import (
    Failed,
    broker_options,
    json_lines_option,
    json_option,
    load_config,
    show,
    show_json,
)
from holdfast.commands.root import LazyGroup

if TYPE_CHECKING:
    from holdfast.cluster.members import Member
    from holdfast.storage.postgres import PostgresDatabase


@click.group(
    cls=LazyGroup,
    locations={"list": "holdfast.commands.node:list_nodes", "remove": "holdfast.commands.node:remove_node"},
)
def node() -> None:
    """List the members of a cluster, and remove those that do not come back.

    The commands read the database. They work with any member's configuration, and while no member runs.
    """


@click.command()
@broker_options
@json_lines_option
def list_nodes(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the nodes with their states and leases.

    joining: it restores its Sessions. member: it serves clients. dead: another one has taken over from it. left: it was
    removed. Members should have the same options: a different configuration has a different sign.
    """
    from holdfast.cluster.members import read_members

    database = _database(config, data_dir, storage)
    with database.explaining_errors(), database.open_connection() as connection:
        members = read_members(connection.cursor())
    for member in members:
        if as_json:
            show_json(_described(member))
        else:
            show(_text(member))
    if not members and not as_json:
        show("no node has joined a cluster on this database")


@click.command()
@click.argument("number", type=click.IntRange(1, 255), metavar="NODE")
@broker_options
@json_option
def remove_node(number: int, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Note that NODE, which is dead, does not come back.

    Another member has taken over its Wills and leases. Its Sessions stay in the database. A new broker may have its
    number.
    """
    from holdfast.cluster.members import remove

    database = _database(config, data_dir, storage)
    with database.explaining_errors(), database.open_connection() as connection, connection.transaction():
        remove(connection.cursor(), number, database.location)
    if as_json:
        show_json({"node": number, "removed": True})
    else:
        show(f"node {number} has left the cluster")


def _database(config: Path | None, data_dir: str | None, storage: str | None) -> PostgresDatabase:
    """Return the database after its schema is checked. Raises StoreUnusable, and Failed for an SQLite database."""
    from holdfast.storage.database import Durability
    from holdfast.storage.maintenance import database_at, examine

    settings = load_config(config, data_dir, storage)
    if settings.storage.url.startswith("sqlite"):
        raise Failed("a cluster needs Postgres: name the database of its members with --config or --storage")
    found = examine(database_at(settings.storage.url, Durability.FULL))
    if not found.is_current:
        schema = found.version or "not built yet"
        raise Failed(f"the schema is {schema}: start a broker, or run {settings.upgrade_command}")
    from holdfast.storage.postgres import PostgresDatabase

    database = database_at(settings.storage.url, Durability.FULL)
    assert isinstance(database, PostgresDatabase)
    return database


def _described(member: Member) -> dict[str, Any]:
    return {
        "node": member.node, "cluster": member.cluster, "state": member.state, "incarnation": member.incarnation,
        "alive": member.is_alive, "lease_seconds": member.left / 1000 if member.is_alive else 0.0,
        "address": member.address, "configuration": member.config_hash,
    }  # fmt: skip


def _text(member: Member) -> str:
    lease = f"lease for {member.left / 1000:.1f} s" if member.is_alive else "no lease"
    state = member.state if member.is_alive or member.state in ("dead", "left") else "silent"
    address = f", {member.address}" if member.address else ""
    return (
        f"node {member.node} of {member.cluster}: {state}, {lease}, incarnation {member.incarnation}, configuration"
        f" {member.config_hash}{address}"
    )
