"""The members of a cluster in a real Postgres: who may join, who takes over, and what a superseded writer may do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from attrs import evolve
from click.testing import CliRunner

from holdfast.cluster import members
from holdfast.cluster.members import Candidate, LeaseConnection, StillLeased, join, pooler_between, read_members
from holdfast.cluster.membership import Starting
from holdfast.commands import main
from holdfast.core.tickets import CommitTicket, FailureKind, StorageFailure, Superseded
from holdfast.storage import layouts, postgres
from holdfast.storage.committer import Write
from holdfast.storage.database import Database, Durability
from holdfast.storage.location import StoreUnusable
from holdfast.storage.maintenance import database_at
from holdfast.storage.postgres import LonePostgres, MemberPostgres, PostgresDatabase
from holdfast.storage.postgres_values import LIVING_NODES
from holdfast.storage.store import DurableStore
from tests.postgres import drop, fresh_database, synchronous
from tests.storage.doubles import Wall

LEASE = 60_000


@pytest.fixture
def url() -> Iterator[str]:
    """A database with a current schema."""
    made = fresh_database()
    yield made
    drop(made)


def database(url: str, node: int = 1) -> PostgresDatabase:
    """Return the database of a node."""
    made = database_at(url, Durability.FULL, node)
    assert isinstance(made, PostgresDatabase)
    return made


def candidate(node: int = 1, cluster: str = "plant") -> Candidate:
    """Return a node that is about to join."""
    return Candidate(cluster=cluster, node=node, lease=LEASE, address=f"mqtt{node}:1883", config_hash="0123")


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, or nothing."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


def end_lease(url: str, node: int) -> None:
    """Let the lease of a node end now, as if its time had passed."""
    ask(url, f"UPDATE cluster_members SET lease_until = 0 WHERE node = {node}")


@pytest.fixture
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take over although the server has not run for the time of a lease."""
    for name in ("_DEAD", "_RENEW"):
        monkeypatch.setattr(members, name, getattr(members, name).replace("{lease} * interval", "0 * interval"))


def test_each_joining_begins_an_incarnation(url: str) -> None:
    """The numbers of a node rise."""
    assert join(database(url), candidate()) == 1
    end_lease(url, 1)
    assert join(database(url), candidate()) == 2
    (row,) = read_members(database(url).open_connection().cursor())
    assert (row.state, row.cluster, row.address, row.protocols) == ("joining", "plant", "mqtt1:1883", (1, 1))
    assert 0 < row.left <= LEASE
    connection = LeaseConnection(database(url), 1, 2, LEASE, 5.0)
    assert connection.renew().renewed
    connection.close()
    (row,) = read_members(database(url).open_connection().cursor())
    assert row.state == "member"
    assert 0 < row.left <= LEASE


def test_a_lease_of_an_earlier_process_has_to_end_first(url: str) -> None:
    """So a node id in use is never taken from a living member."""
    join(database(url), candidate())
    with pytest.raises(StillLeased, match=r"the lease of an earlier process with node.id = 1 lasts for .* s more"):
        join(database(url), candidate())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("cluster = 'fleet'", 'is used by the cluster "fleet" .node.id 2.; set cluster.name = "fleet", or give'),
        ("protocol_min = 2, protocol_max = 3", "has the cluster's protocols 2 to 3, this node has 1; install a newer"
         " version on this node first"),
        ("protocol_min = 0, protocol_max = 0", "install a newer version on node.id 2 first"),
    ],
)  # fmt: skip
def test_members_that_cannot_work_together_are_refused(url: str, change: str, sentence: str) -> None:
    """A second cluster on one database, and versions that do not understand each other; not those of dead members."""
    join(database(url, 2), candidate(2))
    ask(url, f"UPDATE cluster_members SET {change} WHERE node = 2")
    with pytest.raises(StoreUnusable, match=sentence):
        join(database(url), candidate())
    end_lease(url, 2)
    assert join(database(url), candidate()) == 1


def test_a_server_that_lets_nobody_be_fenced_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its remedy: a pooler in between, and a user that may not end its own connections."""
    monkeypatch.setattr(members, "may_end_connections", lambda *_: False)
    with pytest.raises(StoreUnusable, match=r"its user may not end its own connections.*or remove .cluster"):
        join(database(url), candidate())
    monkeypatch.setattr(members, "pooler_between", lambda _: True)
    with pytest.raises(StoreUnusable, match=r"a pooler is in between.*give storage.url the server itself"):
        join(database(url), candidate())
    assert ask(url, "SELECT * FROM cluster_members") == []


@pytest.mark.parametrize(("answers", "found"), [((7, 7), False), ((8, 7), True), ((7, 8), True)])
def test_a_pooler_shows_in_the_numbers_of_connections(answers: tuple[int, int], found: bool) -> None:
    """It tells one number at the beginning; a statement may go to a server's connection with another."""
    left = list(answers)
    connection = SimpleNamespace(
        info=SimpleNamespace(backend_pid=7),
        execute=lambda _: SimpleNamespace(fetchone=lambda: (left.pop(0),)),
    )
    assert pooler_between(cast("psycopg.Connection[Any]", connection)) is found


def test_a_user_without_the_right_to_end_connections_is_found(url: str) -> None:
    """The right is tried, not asked for."""
    with database(url).open_connection() as connection:
        assert members.may_end_connections(database(url), connection)


class Member:
    """A store whose writer belongs to an incarnation."""

    def __init__(self, url: str, node: int = 1, manual: bool = False) -> None:
        self.superseded = 0
        _, self.executor = synchronous(url, node, manual=manual)

        def joined(found: Database) -> Database:
            assert isinstance(found, PostgresDatabase)
            self.incarnation = join(found, candidate(node))
            return MemberPostgres.of(found, self.incarnation)

        def count() -> None:
            self.superseded += 1

        from twisted.internet.task import Clock

        self.clock = Clock()
        self.store = DurableStore(
            url, node=node, reactor=self.clock, now=Wall(), executor=self.executor,
            reading_executor=lambda: self.executor, join=joined, on_superseded=count,
        )  # fmt: skip

    def open(self) -> Member:
        """Join."""
        self.store.open()
        return self

    def write(self, kind: Any, key: int) -> CommitTicket:
        """Submit a row, with a ticket."""
        assert self.store.parts is not None
        return self.store.parts.writer.submit(Write(kind, (key,), (key, "", 0), 10))


@pytest.fixture
def kind() -> Any:
    """A write kind with rows of a number each."""
    from holdfast.sessions.rows import RowKind
    from holdfast.storage.postgres_values import PostgresBulk

    return RowKind(layouts.source_surveys, 10, PostgresBulk(), lambda: None)


def test_a_member_commits_while_its_incarnation_lasts(url: str, kind: Any) -> None:
    """Each transaction compares the incarnation."""
    member = Member(url).open()
    ticket = member.write(kind, 1)
    assert (ticket.settled, ticket.failure) == (True, None)
    member.store.close()
    assert ask(url, "SELECT node FROM source_surveys") == [(1,)]


def test_a_superseded_writer_acknowledges_nothing(url: str, kind: Any) -> None:
    """No ticket is settled, not even with a failure; errands fail; nothing is stored, also at its close."""
    member = Member(url).open()
    ask(url, "UPDATE cluster_members SET incarnation = incarnation + 1")
    first = member.write(kind, 1)
    second = member.write(kind, 2)
    assert member.store.parts is not None
    writer = member.store.parts.writer
    assert [first.settled, second.settled, writer.flushed().settled] == [False] * 3
    assert member.superseded == 1
    assert not writer.available
    failures: list[Any] = []
    writer.run(lambda _: None).addErrback(failures.append)
    assert isinstance(failures[0].value, Superseded)
    member.store.close()
    assert ask(url, "SELECT node FROM source_surveys") == []


def test_a_superseded_errand_ends_the_writer_too(url: str) -> None:
    """Whatever begins a transaction finds it."""
    member = Member(url).open()
    ask(url, "UPDATE cluster_members SET incarnation = incarnation + 1")
    assert member.store.parts is not None
    failures: list[Any] = []
    member.store.parts.writer.run(lambda _: None).addErrback(failures.append)
    assert isinstance(failures[0].value, Superseded)
    assert member.superseded == 1


def test_a_writer_that_comes_back_after_its_place_was_taken_is_superseded(url: str, kind: Any) -> None:
    """Its connection was ended; the next one compares the incarnation as soon as it has the lock."""
    member = Member(url).open()
    end_lease(url, 1)
    with database(url, 2).open_connection() as connection, members.taken_place(connection, 1, ""):
        assert (1,) in ask(url, LIVING_NODES)  # the lock is that of the one who takes over
    ticket = member.write(kind, 1)
    assert not ticket.settled
    member.clock.advance(60)
    assert not ticket.settled
    assert member.superseded == 1
    assert ask(url, "SELECT node FROM source_surveys") == []


def test_what_a_dead_member_has_left_open_never_becomes_visible(url: str) -> None:
    """Its transaction ends before its place is taken; also one that has locked its row of the totals."""
    member = Member(url).open()
    old = member.store.parts
    assert old is not None
    hanging = MemberPostgres.of(database(url), member.incarnation)
    member.store.close()
    connection = hanging.connect()
    hanging.begin(connection)
    connection.execute("UPDATE nodes SET retained_count = 99 WHERE node = 1")
    connection.execute("INSERT INTO source_surveys VALUES (9, '', 0)")
    end_lease(url, 1)
    with database(url, 2).open_connection() as other, members.taken_place(other, 1, ""):
        with pytest.raises(psycopg.Error):
            connection.commit()
        assert ask(url, "SELECT node FROM source_surveys") == []


def test_an_heir_that_is_superseded_itself_takes_nothing(url: str) -> None:
    """The hand-over is a transaction of its writer, which compares the heir's own incarnation."""
    ask(url, f"INSERT INTO wills VALUES (2, {WILL.format('a')})")
    heir = Member(url).open()
    ask(url, "UPDATE cluster_members SET incarnation = incarnation + 1")
    assert heir.store.parts is not None
    failures: list[Any] = []
    writer = heir.store.parts.writer
    writer.run(lambda connection: members.hand_over(connection.cursor(), 2, 1)).addErrback(failures.append)
    assert isinstance(failures[0].value, Superseded)
    assert ask(url, "SELECT node FROM wills") == [(2,)]


def test_nobody_takes_the_place_of_a_living_member(url: str) -> None:
    """Its lease may have been renewed since somebody looked."""
    member = Member(url).open()
    with (
        database(url, 2).open_connection() as connection,
        pytest.raises(StorageFailure, match="node 1 has renewed its lease"),
        members.taken_place(connection, 1, ""),
    ):
        raise AssertionError("the place was taken")
    member.store.close()
    assert member.superseded == 0


WILL = "'{}', NULL, 't', 1, 1, 0, NULL, '\\x00', '\\x6f', 'default', 0, 0"


@pytest.mark.usefixtures("patient_server")
def test_an_heir_takes_wills_and_leases(url: str) -> None:
    """The Will of a client that is connected elsewhere is over, but not that of one that has left an older Will there.
    What belongs to a stored Session stays with that, as the Sessions of the dead node do. A node that joins takes
    nothing: after an outage, it may be the first one that reaches the database."""
    for node in (2, 3, 4):
        join(database(url, node), candidate(node))
    for node in (2, 3):
        end_lease(url, node)
    for node, client in ((2, "a"), (3, "b"), (3, "moved"), (4, "moved")):
        ask(url, f"INSERT INTO wills VALUES ({node}, {WILL.format(client)})")
    for term, session in (("connected", 0), ("session", 0), ("session", 77)):
        ask(url, f"INSERT INTO retained_leases VALUES (2, '{term}{session}', 1, 'c', NULL, '{term}', {session})")
    ask(url, "INSERT INTO sessions VALUES (770, 's', NULL, 'default', NULL, NULL, NULL)")
    ask(url, f"INSERT INTO wills VALUES (3, {WILL.format('back')})")
    ask(url, f"INSERT INTO wills VALUES (4, {WILL.format('back')})")
    ask(url, "UPDATE wills SET due_at = 5 WHERE node = 4 AND client_id = 'back'")
    join(database(url), candidate())
    assert ask(url, "SELECT node FROM cluster_members WHERE state = 'dead'") == []
    for node in (2, 3):
        with database(url).open_connection() as connection, members.taken_place(connection, node, url):
            members.hand_over(connection.cursor(), node, 1)
    assert ask(url, "SELECT node, client_id FROM wills ORDER BY 1, 2") == [
        (1, "a"), (1, "b"), (1, "back"), (4, "back"), (4, "moved"),
    ]  # fmt: skip
    assert ask(url, "SELECT node, topic FROM retained_leases ORDER BY 1, 2") == [
        (1, "connected0"), (1, "session0"), (2, "session77"),
    ]  # fmt: skip
    assert ask(url, "SELECT node, state, incarnation FROM cluster_members ORDER BY node") == [
        (1, "joining", 1), (2, "dead", 2), (3, "dead", 2), (4, "joining", 1),
    ]  # fmt: skip
    assert ask(url, "SELECT count(*) FROM sessions") == [(1,)]


def test_nobody_takes_over_just_after_the_server_has_started(url: str) -> None:
    """All leases have ended during its outage: the members need the time of a lease to renew theirs."""
    join(database(url, 2), candidate(2))
    end_lease(url, 2)
    long = evolve(candidate(), lease=1000 * 24 * 3600)
    join(database(url), long)
    assert ask(url, "SELECT state FROM cluster_members WHERE node = 2") == [("joining",)]
    connection = LeaseConnection(database(url), 1, 1, long.lease, 5.0)
    assert connection.renew().dead == ()
    connection.close()


@pytest.mark.usefixtures("patient_server")
def test_a_renewal_names_the_dead(url: str) -> None:
    """And tells if another incarnation of its own node has begun."""
    for node in (1, 2, 3):
        join(database(url, node), candidate(node))
    end_lease(url, 3)
    connection = LeaseConnection(database(url), 1, 1, LEASE, 5.0)
    renewal = connection.renew()
    assert (renewal.renewed, renewal.dead) == (True, (3,))
    ask(url, "UPDATE cluster_members SET incarnation = 2 WHERE node = 1")
    assert not connection.renew().renewed
    connection.close()


def test_a_renewal_waits_for_a_server_that_hangs_only_for_its_patience(url: str) -> None:
    """As if a network took everything and delivered nothing: here, a lock holds the row."""
    join(database(url), candidate())
    connection = LeaseConnection(database(url), 1, 1, LEASE, 0.05)
    with psycopg.connect(url.replace("+psycopg", "")) as holder:
        holder.execute("SELECT * FROM cluster_members FOR UPDATE")
        with pytest.raises(StorageFailure, match=r"no answer within 0.05 s"):
            connection.renew()
    patient = LeaseConnection(database(url), 1, 1, LEASE, 5.0)
    assert patient.renew().renewed
    patient.leave()
    patient.close()
    assert [member.is_alive for member in read_members(database(url).open_connection().cursor())] == [False]


def test_an_import_does_not_hold_up_a_renewal(url: str) -> None:
    """The writer's transactions lock the node's row of the totals, and no row that a lease needs."""
    member = Member(url).open()
    assert member.store.parts is not None
    connection = LeaseConnection(database(url), 1, 1, LEASE, 5.0)

    def work(held: Any) -> bool:
        held.cursor().execute("UPDATE nodes SET retained_count = 1 WHERE node = 1")
        return connection.renew().renewed

    answers: list[bool] = []
    member.store.parts.writer.run(work).addCallback(answers.append)
    assert answers == [True]
    connection.close()
    member.store.close()


def test_a_broker_alone_and_others_exclude_each_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes second is refused, with what to do; a member beside a member is not."""
    monkeypatch.setattr(postgres, "_LOCK_TIMEOUT", 20)
    alone = LonePostgres.of(database(url, 1)).connect()
    with pytest.raises(
        StorageFailure,
        match=r"another broker uses this database .node.id 1, by connection [0-9]+.; to run several brokers on"
        ' one database, add two lines to the configuration of each: .cluster. and name = "NAME"',
    ):
        LonePostgres.of(database(url, 2)).connect()  # fmt: skip
    ask(url, "INSERT INTO cluster_members VALUES (3, 'plant', 5, 0, 'member', 1, 1, '', '')")
    with pytest.raises(StorageFailure, match=r"a broker without .cluster. uses this database .node.id 1, by"):
        MemberPostgres.of(database(url, 3), 5).connect()
    with pytest.raises(StoreUnusable, match=r"a broker without .cluster. uses this database"):
        join(database(url), candidate())  # with its own node.id
    assert alone.execute("SELECT 1").fetchone() == (1,)
    alone.close()
    ask(url, "INSERT INTO cluster_members VALUES (4, 'plant', 5, 0, 'member', 1, 1, '', '')")
    with (
        MemberPostgres.of(database(url, 3), 5).connect(),
        MemberPostgres.of(database(url, 4), 5).connect(),
        pytest.raises(StorageFailure, match=r"another broker uses this database .node.id 3, by .*, node.id 4, by"),
    ):
        LonePostgres.of(database(url, 1)).connect()


def test_a_member_is_not_kept_out_by_its_own_lost_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may notice only after hours that a connection is gone. Another incarnation is kept out."""
    monkeypatch.setattr(postgres, "_LOCK_TIMEOUT", 500)
    ask(url, "INSERT INTO cluster_members VALUES (3, 'plant', 5, 0, 'member', 1, 1, '', '')")
    lost = MemberPostgres.of(database(url, 3), 5).connect()
    with pytest.raises(Superseded):
        MemberPostgres.of(database(url, 3), 4).connect()
    assert lost.execute("SELECT 1").fetchone() == (1,)
    with MemberPostgres.of(database(url, 3), 5).connect() as again:
        assert again.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError):
            lost.execute("SELECT 1")


def test_a_node_renews_its_lease_while_it_starts() -> None:
    """Until it has restored its Sessions, however long that takes, and whatever single renewals fail."""
    asked: Queue[str] = Queue()

    class Server:
        def renew(self, state: str) -> None:
            asked.put(state)
            if asked.qsize() == 1:
                raise StorageFailure(FailureKind.UNAVAILABLE, "no answer", "")

    starting = Starting(cast("LeaseConnection", Server()), 0.001)
    assert [asked.get(timeout=30) for _ in range(3)] == ["joining"] * 3
    starting.end()
    assert starting._thread is not None
    assert not starting._thread.is_alive()


@pytest.fixture
def command(url: str) -> Callable[..., Any]:
    """Run ``holdfast node`` on this database."""

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["node", *arguments, "--storage", url])

    return run


def test_the_commands_list_and_remove_nodes(command: Callable[..., Any], url: str) -> None:
    """Only a dead node is removed; its row stays, so that a new holder of the number begins above its incarnation."""
    assert command("list").stdout == "no node has joined a cluster on this database\n"
    for node in (1, 2):
        join(database(url, node), candidate(node))
    assert command("remove", "1").exit_code == 1
    assert "node 1 is alive; stop it first" in command("remove", "1").stderr
    assert "has no node 9; holdfast node list shows the nodes" in command("remove", "9").stderr
    end_lease(url, 2)
    assert "no member has taken over from node 2 yet" in command("remove", "2").stderr
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("UPDATE cluster_members SET state = 'dead' WHERE node = 2")
    lines = [json.loads(line) for line in command("list", "--json").stdout.splitlines()]
    assert [(line["node"], line["state"], line["node_status"], line["lag"]) for line in lines] == [
        ("1", "joining", "running", 0),
        ("2", "dead", "stopped", 0),
    ]
    assert json.loads(command("remove", "2", "--json").stdout) == {"node": 2, "removed": True}
    shown = command("list").stdout.splitlines()
    assert shown[0].startswith("node 1 of plant: joining, lease for ")
    assert shown[1] == "node 2 of plant: left, no lease, incarnation 1, configuration 0123, mqtt2:1883"
    assert join(database(url, 2), candidate(2)) == 2


def test_a_member_is_drained_by_a_command_and_keeps_that_until_it_ends(command: Callable[..., Any], url: str) -> None:
    """Its renewals do not change the state, they tell it. A new process of the node serves clients again."""
    incarnation = join(database(url, 1), candidate(1))
    lease = LeaseConnection(database(url, 1), 1, incarnation, 6000, 5)
    assert "node 1 is joining, and serves no client yet" in command("drain", "1").stderr
    assert not lease.renew().drains
    assert command("drain", "1").stdout == "node 1 sends its clients to other members\n"
    assert json.loads(command("drain", "1", "--json").stdout) == {"node": "1", "state": "draining"}
    assert [lease.renew().drains for _ in range(2)] == [True, True]
    assert command("list").stdout.startswith("node 1 of plant: draining, lease for ")
    assert command("drain", "1", "--cancel").stdout == "node 1 serves clients again\n"
    renewal = lease.renew()
    assert (renewal.renewed, renewal.drains) == (True, False)
    command("drain", "1")
    lease.leave()
    assert "node 1 does not run, and serves no client" in command("drain", "1").stderr
    assert "has no node 9; holdfast node list shows the nodes" in command("drain", "9").stderr
    lease.close()
    renewed = LeaseConnection(database(url, 1), 1, join(database(url, 1), candidate(1)), 6000, 5)
    assert not renewed.renew().drains
    renewed.close()


def test_the_commands_need_postgres(tmp_path: Path) -> None:
    """One sentence, and what to do."""
    found = CliRunner().invoke(main, ["node", "list", "--data-dir", str(tmp_path)])
    assert found.exit_code == 1
    assert found.stderr == "a cluster needs Postgres: name the database of its members with --config or --storage\n"


def test_a_renewal_tells_the_configuration_of_each_node(url: str) -> None:
    """Dead ones included; an alarm compares those of the living."""
    join(database(url), candidate(1))
    join(database(url, 2), evolve(candidate(2), config_hash="4567"))
    connection = LeaseConnection(database(url), 1, 1, LEASE, 5.0)
    places = connection.renew().places
    connection.close()
    assert [(place.node, place.config_hash) for place in places] == [(1, "0123"), (2, "4567")]
