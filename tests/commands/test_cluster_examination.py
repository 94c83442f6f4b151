"""Each check of ``holdfast doctor`` of a member of a cluster: it finds its fault, and is silent without the fault."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from attrs import evolve

from holdfast.broker.cluster import hash_of
from holdfast.cluster.members import Candidate, join
from holdfast.commands import cluster_examination as examination
from holdfast.commands.examination import Finding, examine
from holdfast.config import Config, load
from holdfast.config.sections.cluster import ClusterConfig
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from holdfast.storage.postgres import PostgresDatabase
from tests.certificates import Authority
from tests.nats_server import NatsProcess, free_port, running
from tests.postgres import drop, fresh_database

Read = Callable[..., Config]

_SUBSCRIPTION = (
    "INSERT INTO session_subscriptions (session_id, topic_filter, qos, no_local, retain_as_published, retain_handling,"
    " identifier) VALUES (%s, %s, 1, 0, 0, 0, 0)"
)
_PERMISSIONS = 'permissions: { publish: "x.>", subscribe: "x.>" }'
_OLD = b'INFO {"version":"1.4.1","max_payload":1048576}\r\nPONG\r\n'


@pytest.fixture
def url() -> Iterator[str]:
    """A database with a current schema."""
    made = fresh_database()
    yield made
    drop(made)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read the configuration of a member with these lines in ``[cluster]``, and a good secret."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"0" * 44 + b"\n")
    secret.chmod(0o600)

    def read(*lines: str, url: str = "postgresql+psycopg://db.example.org/holdfast") -> Config:
        file = tmp_path / "holdfast.toml"
        file.write_text("\n".join([f"storage.url = '{url}'", "[cluster]", 'name = "plant"', *lines]) + "\n")
        return load(file).override([], None, None, allow_anonymous=True, cwd=tmp_path)

    return read


def with_nats(read: Read, url: str, *lines: str) -> Config:
    return read(f'bus = "{url}"', 'secret = "file:secret"', *lines)


def _ahead(seconds: float) -> float:
    return time.time() + seconds


def told(findings: Iterator[Finding]) -> list[str]:
    return [f"{one.weight.value}: {one.message}; {one.remedy}" for one in findings]


def test_a_good_member_and_a_broker_alone_have_no_findings(read: Read, url: str) -> None:
    """With the bus in the database; without [cluster] nothing is looked at."""
    assert list(examine(read(url=url), examination.CLUSTER_CHECKS)) == []
    alone = evolve(read(), cluster=ClusterConfig())
    assert list(examine(alone, examination.CLUSTER_CHECKS)) == []


def test_a_database_that_is_away_is_one_finding(read: Read) -> None:
    config = read(url=f"postgresql+psycopg://127.0.0.1:{free_port()}/holdfast")
    assert len(list(examine(config, examination.CLUSTER_CHECKS))) == 1


def test_clocks_that_differ(read: Read, url: str) -> None:
    """In either direction; the time of the question does not count."""
    config = read(url=url)
    assert list(examination.clocks(config)) == []
    for seconds in (-60, 60):
        (finding,) = told(examination.clocks(config, partial(_ahead, seconds)))
        assert "differs from that of the database's server by" in finding
        assert finding.endswith("set both by NTP")


def test_members_with_other_configurations(read: Read, url: str) -> None:
    """Those that live; the same one is no finding."""
    config = read(url=url)
    for node, config_hash in ((2, hash_of(config)), (3, "other")):
        found = database_at(url, Durability.FULL, node)
        assert isinstance(found, PostgresDatabase)
        join(found, Candidate(cluster="plant", node=node, lease=60_000, address="", config_hash=config_hash))
    (finding,) = told(examination.configurations(config))
    assert finding.startswith("advice: node 3 of the cluster runs with another one; give all members the same one")


def test_topic_filters_of_other_nodes_that_take_much_memory(read: Read, url: str) -> None:
    """Those of this node are not counted, and one filter of several Sessions of a node counts once."""
    config = read(url=url)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for session, name in ((256 + 2, "a/b"), (512 + 2, "a/b"), (256 + 1, "mine"), (256 + 3, "a/b")):
            connection.execute("SET session_replication_role = replica")  # without the rows of the Sessions
            connection.execute(_SUBSCRIPTION, (session, name))
    assert list(examination.memory_for_subscriptions(config, lambda: 1 << 30)) == []
    (finding,) = told(examination.memory_for_subscriptions(config, lambda: 4000))
    assert finding.startswith("advice: 2 stored Topic Filters of other nodes take some")


@pytest.mark.parametrize(
    ("mode", "content", "sentence"),
    [
        (0o600, b"short\n", "has 5 bytes; allowed: 32 or more"),
        (0o604, b"0" * 44, "every user of this machine may read or write this file"),
        (0o620, b"0" * 44, r"others can use it .mode 0620.; chmod g-w,o="),
        (None, b"", "the file cannot be read: No such file"),
    ],
)
def test_a_secret_that_cannot_be_used(
    read: Read, tmp_path: Path, mode: int | None, content: bytes, sentence: str
) -> None:
    """Its length, and who can read or change it; the content is never shown."""
    config = with_nats(read, "nats://127.0.0.1:1")
    assert list(examination.secret(config)) == []
    file = tmp_path / "secret"
    file.write_bytes(content)
    if mode is None:
        file.unlink()
    else:
        file.chmod(mode)
    (finding,) = examination.secret(config)
    assert re.search(sentence, f"{finding.message}; {finding.remedy}")
    assert list(examination.nats_servers(config)) == []


@pytest.mark.parametrize(
    ("settings", "login", "sentence"),
    [
        ((), "", None),
        (('authorization { user: me, password: "s@cret" }',), "me:s%40cret@", None),
        (('authorization { user: me, password: "s@cret" }',), "me:wrong@",
         "it says: Authorization Violation; correct the login in cluster.bus, or the users of NATS"),
        ((f"authorization {{ users = [ {{ user: me, password: p, {_PERMISSIONS} }} ] }}",),
         "me:p@", "Permissions Violation.*; allow the login to publish and to subscribe to holdfast.plant.>"),
        (("max_payload: 8192",), "", "its max_payload is 8192: larger messages are sent in parts; set max_payload"),
        (("max_payload: 512",), "", "its max_payload is 512, and members need 1024; set max_payload: 1MB"),
    ],
)  # fmt: skip
def test_a_server_of_nats(
    read: Read, tmp_path: Path, settings: tuple[str, ...], login: str, sentence: str | None
) -> None:
    """It is asked as the broker would do it. No password is shown."""
    server = NatsProcess(tmp_path, *settings)
    with running(server):
        found = told(examination.nats_servers(with_nats(read, server.url.replace("//", f"//{login}"))))
    assert len(found) == (sentence is not None)
    for finding in found:
        assert re.search(sentence or "", finding)
        assert "wrong" not in finding


def test_a_server_that_is_not_there(read: Read) -> None:
    """It is advice: the broker starts, and uses the database."""
    (finding,) = told(examination.nats_servers(with_nats(read, f"nats://127.0.0.1:{free_port()}")))
    assert finding == (
        "advice: it cannot be reached: Connection refused; start it, or correct it in cluster.bus; the database carries"
        " messages meanwhile"
    )


@pytest.mark.parametrize(
    ("greeting", "sentence"),
    [
        (_OLD, "its version 1.4.1 gets no corrections any more"),
        (b"SSH-2.0-OpenSSH\r\n", "another program than NATS answers; correct cluster.bus"),
        (b"", "it ends the connection; look at its log"),
    ],
)
def test_other_programs_and_old_servers(read: Read, greeting: bytes, sentence: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(greeting)
                if b"PONG" in greeting:
                    connection.recv(1 << 16)

        thread = Thread(target=answer)
        thread.start()
        (finding,) = told(examination.nats_servers(with_nats(read, f"nats://127.0.0.1:{listener.getsockname()[1]}")))
        thread.join()
    assert sentence in finding


def test_the_certificate_of_a_server(read: Read, tmp_path: Path) -> None:
    """One of the trusted authority is no finding."""
    authority, other = Authority("NATS CA"), Authority("Other CA")
    certificate, key = authority.issue(names=["localhost"]).write(tmp_path, "server")
    for name, each in (("ca", authority), ("other", other)):
        (tmp_path / f"{name}.pem").write_bytes(each.chain)
    server = NatsProcess(tmp_path, f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}')
    with running(server):
        address = f"tls://localhost:{server.port}"
        assert told(examination.nats_servers(with_nats(read, address, 'tls.ca = "ca.pem"'))) == []
        (finding,) = told(examination.nats_servers(with_nats(read, address, 'tls.ca = "other.pem"')))
    assert finding.startswith("advice: TLS failed: unable to get local issuer certificate; correct cluster.tls")
