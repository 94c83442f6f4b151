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
from holdfast.core.terminal import counted

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.storage.postgres import PostgresDatabase


@click.group(
    cls=LazyGroup,
    locations={
        "drain": "holdfast.commands.node:drain_node",
        "list": "holdfast.commands.node:list_nodes",
        "remove": "holdfast.commands.node:remove_node",
    },
)
def node() -> None:
    """List the members of a cluster, empty one before it is stopped, and remove those that do not come back.

    The commands work with any member's configuration, and while no member runs.
    """


@click.command()
@broker_options
@json_lines_option
def list_nodes(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the nodes with their states, leases and clients.

    joining: it restores its Sessions. member: it serves clients. draining: it sends its clients to other members.
    silent: its lease has ended. dead: another one has taken over from it. left: it was removed. Members should have the
    same options: a different configuration has a different sign.

    The broker with this configuration is asked, if it runs on this machine. Else the list has only what the database
    knows: no numbers of clients, and no version.
    """
    settings = load_config(config, data_dir, storage)
    nodes = _asked(settings)
    if nodes is None:
        from holdfast.cluster.nodes import read_nodes, stored_fields

        database = _database(settings)
        with database.explaining_errors(), database.open_connection() as connection:
            nodes = [stored_fields(each) for each in read_nodes(connection)]
    for each in nodes:
        if as_json:
            show_json(each)
        else:
            show(_text(each))
    if not nodes and not as_json:
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

    database = _database(load_config(config, data_dir, storage))
    with database.explaining_errors(), database.open_connection() as connection, connection.transaction():
        remove(connection.cursor(), number, database.location)
    if as_json:
        show_json({"node": number, "removed": True})
    else:
        show(f"node {number} has left the cluster")


@click.command()
@click.argument("number", type=click.IntRange(1, 255), metavar="NODE")
@click.option("--cancel", is_flag=True, help="End the draining: the node serves clients again.")
@broker_options
@json_option
def drain_node(
    number: int, cancel: bool, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool
) -> None:
    """Let NODE send its clients to other members, before it is stopped.

    It admits no client any more, and its check /readyz fails. Clients of MQTT 5 are told the address of another member
    (cluster.address). The node notices within a third of its lease, and does not stop by itself: "holdfast node list"
    shows how many clients it still has.
    """
    from holdfast.cluster.members import drain

    database = _database(load_config(config, data_dir, storage))
    with database.explaining_errors(), database.open_connection() as connection, connection.transaction():
        drain(connection.cursor(), number, database.location, not cancel)
    if as_json:
        show_json({"node": str(number), "state": "member" if cancel else "draining"})
    else:
        show(f"node {number} {'serves clients again' if cancel else 'sends its clients to other members'}")


def _asked(settings: Config) -> list[dict[str, Any]] | None:
    """Return the nodes as the broker on this machine shows them; None if none runs, or this user may not ask it."""
    from holdfast.commands.access import BrokerClient
    from holdfast.commands.interfaces import Inaccessible

    broker = BrokerClient(settings)
    try:
        return broker.call("GET", "/api/v5/nodes") if broker.answers() else None
    except Inaccessible:
        return None


def _database(settings: Config) -> PostgresDatabase:
    """Return the database after its schema is checked. Raises StoreUnusable, and Failed for an SQLite database."""
    from holdfast.storage.database import Durability
    from holdfast.storage.maintenance import database_at, examine

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


def _text(node: dict[str, Any]) -> str:
    clients = f", {counted(node['live_connections'], 'connected client')}" if "live_connections" in node else ""
    if "state" not in node:
        return f"node {node['node']}: {node['node_status']}{clients}"
    lease = f"lease for {node['lease_seconds']:.1f} s" if node["node_status"] == "running" else "no lease"
    silent = ", does not answer" if node.get("silent") else ""
    lag = f", {node['lag']} messages behind" if node["lag"] else ""
    address = f", {node['address']}" if "address" in node else ""
    return (
        f"node {node['node']} of {node['cluster']}: {node['state']}{silent}, {lease}{clients}{lag}, incarnation"
        f" {node['incarnation']}, configuration {node['configuration']}{address}"
    )
