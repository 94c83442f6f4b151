"""``[cluster]``: several brokers on one Postgres database, as its members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import ClassVar

from attrs import frozen

from holdfast.config.options import Duration, Integer, Section, TakesEffect, Text, option
from holdfast.config.reader import KeyProblem
from holdfast.config.sections.storage import StorageConfig


@frozen
class ClusterConfig(Section):
    """The cluster that this broker is a member of, and how long it may go on without the database."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    name: str = option(
        Text(),
        "",
        help="Name of the cluster: the same for all brokers on one Postgres database. Empty = this broker is alone, and"
        " no other broker may use its database.",
        effect="The broker becomes a member of the cluster. All its members have to be stopped to change the name.",
        example="plant",
    )
    lease: float = option(
        Duration("3s", "5m"),
        "6s",
        help="Time for which a member keeps its place without hearing from the database. It renews its lease three"
        " times as often.",
        effect="Longer: outages of the database are noticed later, and other members take over a dead one later.",
        example="10s",
    )
    store_grace: float = option(
        Duration("0s", "10m"),
        "30s",
        help="Time for which a member whose lease has ended waits for the database. It reads nothing from its clients"
        " meanwhile. Then it ends its connections, and its process with status 75.",
        effect="Longer: clients stay connected through longer outages of the database, and wait longer for answers.",
        example="1m",
    )
    address: str = option(
        Text(),
        "",
        help="Address at which clients reach this broker. A member that drains sends its clients there, as the Server"
        " Reference of MQTT 5. holdfast node list shows it.",
        effect="Without it, no member sends clients to this one.",
        example="mqtt1.example.org:1883",
    )
    drain_rate: int = option(
        Integer(1, 1000, unit="clients a second"),
        100,
        help="Clients that a member disconnects in a second while it drains.",
        effect="Higher: the node is empty sooner, and the other members get more connections at once.",
        example=500,
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Refuse other options without a name; the defaults are always allowed."""
        if not self.name and self != ClusterConfig():
            yield "name", "is missing: [cluster] begins with the name of the cluster", ("name",)


def async_in_cluster(cluster: ClusterConfig, storage: StorageConfig) -> Iterator[KeyProblem]:
    """Yield the problem of a member that acknowledges changes before they are committed."""
    if cluster.name and storage.durability == "async":
        yield KeyProblem(
            ("storage", "durability"),
            'found "async": a member that is taken for dead would lose what it has acknowledged; with [cluster],'
            ' allowed: "full" or "process"',
        )


def cluster_on_sqlite(cluster: ClusterConfig, url: str) -> Iterator[KeyProblem]:
    """Yield the problem of a member whose database, at this URL, has room for one broker only."""
    if cluster.name and url.startswith("sqlite"):
        yield KeyProblem(
            ("cluster", "name"),
            "needs Postgres, because an SQLite database has one broker; set storage.url ="
            ' "postgresql+psycopg://USER@HOST/DATABASE", or remove [cluster]',
        )
