"""``[cluster]``: several brokers on one Postgres database, as its members."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from attrs import field, frozen

from holdfast.config.options import Duration, FilePath, Integer, InvalidValue, Section, TakesEffect, Text, option, table
from holdfast.config.reader import KeyProblem
from holdfast.config.secrets import Secret, SecretSource
from holdfast.config.sections.storage import StorageConfig

#: the bus in the database
POSTGRES_BUS = "postgres"
_NATS_PORT = 4222
_MOST_SERVERS = 16
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


@frozen
class NatsServer:
    """A server of NATS, and who logs in there: nobody, a user with a password, or a token."""

    host: str
    port: int
    needs_tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Return the address without the login."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def nats_servers(bus: str) -> tuple[NatsServer, ...]:
    """Return the servers of NATS in a value of ``bus``, none for the bus in the database.

    Raises InvalidValue, whose text never shows a login.
    """
    if bus == POSTGRES_BUS:
        return ()
    servers = tuple(_server(url.strip()) for url in bus.split(","))
    if len(servers) > _MOST_SERVERS:
        raise InvalidValue(f"found {len(servers)} servers; allowed: at most {_MOST_SERVERS}")
    return servers


def _server(url: str) -> NatsServer:
    allowed = f"allowed: {BusAddress.allowed}"
    if _PRINTABLE.fullmatch(url) is None:
        raise InvalidValue(f"found a server without an address, or with a character to be written as %XX; {allowed}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # the text of the error may show the password
        raise InvalidValue(f"found a server whose host or port cannot be read; {allowed}") from None
    if parts.scheme not in ("nats", "tls") or not host or port == 0:
        raise InvalidValue(f"found a server without nats:// or tls://, a host, or a port; {allowed}")
    if parts.netloc.count("@") > 1:
        raise InvalidValue(f"found more than one @ before the host: in a password, write %40; {allowed}")
    if parts.path.strip("/") or "?" in url or "#" in url:
        raise InvalidValue(f"found more than a host and its port; {allowed}")
    name, password = unquote(parts.username or ""), parts.password
    login = {"token": name} if password is None else {"user": name, "password": unquote(password)}
    return NatsServer(host, port or _NATS_PORT, parts.scheme == "tls", **login)


@frozen
class BusAddress:
    """The kind of the option ``bus``."""

    allowed: ClassVar[str] = (
        '"postgres", or servers of NATS with a comma between them: nats://HOST:PORT or tls://HOST:PORT, with'
        " USER:PASSWORD@ or TOKEN@ before the host if they ask for it"
    )

    def read(self, value: object) -> str:
        """Return the servers without spaces; raises InvalidValue, whose text never shows a login."""
        try:
            bus = Text(allowed=self.allowed, empty=False).read(value)
        except InvalidValue:
            raise InvalidValue(f"found no bus; allowed: {self.allowed}") from None
        nats_servers(bus)
        return bus.replace(" ", "")


@frozen
class NatsTLSConfig(Section):
    """TLS for the connections to NATS."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    ca: str = option(
        FilePath(),
        "",
        help="File with the certification authorities (PEM) that are trusted for NATS. Empty = those of the system."
        " Relative paths in this table begin at the folder of this file.",
        effect="The servers need certificates of one of them, for their host in cluster.bus.",
        example="nats-ca.pem",
    )
    certificate: str = option(
        FilePath(),
        "",
        help="File with the certificate of this broker in PEM form, followed by those of the authorities between it and"
        " the root. Empty = the broker shows none.",
        effect="NATS knows the broker by it, if the server has verify or verify_and_map.",
        example="nats-client.pem",
    )
    key: str = option(
        FilePath(),
        "",
        help="File with the private key of the certificate in PEM form; empty if the certificate's file has it.",
        effect="Only the owner of the file needs to read it: chmod 600.",
        example="nats-client.key",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problem of a key without its certificate."""
        if self.key and not self.certificate:
            yield "key", "has no effect without certificate: name the file of the certificate", ("key", "certificate")


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
    bus: str = option(
        BusAddress(),
        POSTGRES_BUS,
        help="Carries messages between the members, which lets them cross sooner than the database tells them."
        ' "postgres" = the database itself, for two or three members. Else the servers of NATS; their names and logins'
        " may differ from member to member, but all have to reach each other through them. While NATS is away, the"
        " database carries the messages. Write %40 for @ in a password.",
        effect="NATS takes load from the database, and messages cross within a millisecond. Members with NATS and"
        " members without it exchange messages through the database.",
        example="nats://nats1.example.org:4222,nats://nats2.example.org:4222",
    )
    secret: Secret | None = option(
        SecretSource(),
        "",
        help="Place of the secret of the cluster, the same for all members: at least 32 random bytes, as of openssl"
        " rand -base64 32. NATS needs it. Relative paths begin at the folder of this file; others on this machine must"
        " not be able to read the file.",
        effect="Members seal with it what they send over NATS. Other users of the same NATS can neither read it, nor"
        " send anything in their name, nor repeat it.",
        example="file:cluster-secret",
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

    tls: NatsTLSConfig = field(factory=NatsTLSConfig, metadata=table(NatsTLSConfig, "TLS for the connections to NATS."))

    @property
    def servers(self) -> tuple[NatsServer, ...]:
        """The servers of NATS, none if the database is the bus."""
        return nats_servers(self.bus)

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Refuse other options without a name, and those that need another; the defaults are always allowed."""
        if not self.name and self != ClusterConfig():
            yield "name", "is missing: [cluster] begins with the name of the cluster", ("name",)
        elif self.servers and self.secret is None:
            message = (
                "is missing, and NATS needs it; make one with: (umask 077; openssl rand -base64 32 > cluster-secret),"
                ' copy it to all members, and write secret = "file:cluster-secret"'
            )
            yield "secret", message, ("secret", "bus")
        if not self.servers:
            if self.secret is not None:
                yield "secret", 'has no effect with bus = "postgres"; name the servers of NATS', ("secret", "bus")
            if self.tls != NatsTLSConfig():
                yield "tls", 'has no effect with bus = "postgres"; name the servers of NATS', ("tls", "bus")


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
