"""Each check of ``holdfast doctor``: it finds its fault, says what to do, and is silent without the fault."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve
from twisted.internet.task import Clock

from holdfast.commands import examination
from holdfast.commands.examination import Finding, Weight, examine
from holdfast.config import Config, default, load
from holdfast.config.document import ZoneOverrides
from holdfast.config.sections.tls import TLSConfig
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.location import StoreDamaged
from holdfast.storage.revisions import TIME_SHIFT
from holdfast.storage.store import DurableStore
from tests.certificates import Authority, Issued
from tests.migrations.later import BASE, later_program
from tests.storage.doubles import fresh_file

NOTHING: list[str] = []


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """The default configuration, with a data directory that a broker has made."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    fresh_file(folder, "holdfast.db")
    for path in folder.iterdir():
        path.chmod(0o600)
    return default(tmp_path)


def told(findings: Iterator[Finding]) -> list[str]:
    return [f"{one.weight.value}: {one.message}; {one.remedy}" for one in findings]


def test_files_that_others_can_use(config: Config) -> None:
    assert told(examination.data_directory(config)) == NOTHING
    database_file = config.data_dir / "holdfast.db"
    database_file.chmod(0o640)
    config.data_dir.chmod(0o755)
    found = list(examination.data_directory(config))
    assert [one.subject for one in found] == [str(config.data_dir), str(database_file)]
    assert found[1].remedy == f"chmod go= {database_file}"
    assert all(one.weight is Weight.PROBLEM for one in found)


def test_a_configuration_that_others_can_change(config: Config, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("")
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    assert told(examination.configuration_file(load(file))) == NOTHING
    file.chmod(0o666)
    assert told(examination.configuration_file(load(file))) == [
        f"problem: others than its owner can write to it (mode 0666); chmod go-w {file}"
    ]
    assert told(examination.configuration_file(config)) == NOTHING


@pytest.mark.parametrize(
    ("mode", "count"), [(0o600, 0), (0o640, 0), (0o644, 1), (0o660, 1), (None, 1)], ids=["", "", "", "", "missing"]
)
def test_a_secret_that_others_can_read(tmp_path: Path, mode: int | None, count: int) -> None:
    file = tmp_path / "key.pem"
    if mode is not None:
        file.write_text("")
        file.chmod(mode)
    assert len(told(examination.secret_file(file, "a private key"))) == count


def test_files_of_users_that_others_can_read(tmp_path: Path) -> None:
    file, users = tmp_path / "holdfast.toml", tmp_path / "passwords"
    file.write_text('[authentication.passwords]\ntype = "file"\npath = "passwords"\n')
    users.write_text("")
    users.chmod(0o640)
    assert told(examination.files_of_users(load(file))) == NOTHING
    users.chmod(0o644)
    assert told(examination.files_of_users(load(file))) == [
        f"problem: users and their passwords: others can use it (mode 0644); chmod g-w,o= {users}"
    ]


@pytest.mark.parametrize(
    ("hard", "most", "expected"),
    [
        (100_000, None, NOTHING),
        (20_000, None, ["advice: 20,000 allow no more connections than 19,800"]),
        (201, None, ["problem: 201 allow no more connections than 1"]),
        (1_000, 800, NOTHING),
        (1_000, 801, ["problem: the listeners allow 801 connections, but 1,000 open files suffice for 800"]),
        (resource.RLIM_INFINITY, 801, NOTHING),
    ],
)
def test_open_files(
    config: Config, monkeypatch: pytest.MonkeyPatch, hard: int, most: int | None, expected: list[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    listeners = {"default": evolve(config.listeners["default"], max_connections=most)}
    found = told(examination.open_files(evolve(config, listeners=listeners)))
    assert [line.partition(";")[0] for line in found] == expected


@pytest.mark.parametrize(("content", "count"), [("4096\n", 0), ("128\n", 1), ("", 0), (None, 0)])
def test_a_short_backlog(config: Config, tmp_path: Path, content: str | None, count: int) -> None:
    file = tmp_path / "somaxconn"
    if content is not None:
        file.write_text(content)
    assert len(told(examination.backlog(config, file))) == count


def test_a_full_disk(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 0, 1 << 20))
    [line] = told(examination.room(config))
    assert line.startswith("problem: its disk has 1 MB left")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 0, 1 << 31))
    assert told(examination.room(config)) == NOTHING


def test_a_network_file_system(config: Config, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {config.data_dir} nfs4 rw 0 0\n")
    [line] = told(examination.kind(config, mounts))
    assert line.startswith("problem: it is on a file system of type nfs4")
    mounts.write_text(f"server:/x / nfs4 rw 0 0\n/dev/sda {config.data_dir.parent} ext4 rw 0 0\n")
    assert told(examination.kind(config, mounts)) == NOTHING


def test_a_slow_sync(config: Config) -> None:
    before = sorted(config.data_dir.iterdir())
    assert [line.partition(":")[0] for line in told(examination.sync_time(config, lambda _: 0.03))] == ["advice"]
    assert told(examination.sync_time(config, lambda _: 0.001)) == NOTHING
    list(examination.sync_time(config))
    assert sorted(config.data_dir.iterdir()) == before


def test_a_clock_that_was_set_back(config: Config) -> None:
    with sqlite3.connect(config.data_dir / "holdfast.db") as connection:
        connection.execute("UPDATE nodes SET revision_mark = ?", (2_000_000 << TIME_SHIFT,))
    assert told(examination.not_set_back(config, lambda: 2_000.0)) == NOTHING
    [line] = told(examination.not_set_back(config, lambda: 1_900.0))
    assert line.startswith("problem: it is 100 s before the newest change in the database")


def test_a_clock_that_nothing_keeps_in_step(config: Config) -> None:
    assert told(examination.synchronised(config, lambda: 0)) == NOTHING
    assert len(told(examination.synchronised(config, lambda: 5))) == 1


def test_the_database(config: Config, tmp_path: Path) -> None:
    before = sorted(config.data_dir.iterdir())
    assert told(examination.database(config)) == NOTHING
    assert sorted(config.data_dir.iterdir()) == before
    with later_program(tmp_path):
        [line] = told(examination.database(config))
    assert line.startswith(f"problem: it has the older schema {BASE}")
    assert "holdfast db upgrade --data-dir" in line
    (config.data_dir / "holdfast.db").unlink()
    assert told(examination.database(config)) == NOTHING


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 4096)


def mark(file: Path) -> None:
    file.with_name(file.name + ".damaged").write_text("malformed")


def spoil_a_table(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sessions'").fetchone()
    with file.open("r+b") as pages:
        pages.seek((page - 1) * 4096)
        pages.write(b"\xff" * 4096)


@pytest.mark.parametrize("damage", [cut, mark, spoil_a_table])
def test_a_damaged_database(config: Config, damage: Callable[[Path], None]) -> None:
    """What a start refuses is a problem here, too."""
    file = config.data_dir / "holdfast.db"
    damage(file)
    [finding] = examination.database(config)
    assert finding.weight is Weight.PROBLEM
    assert "damaged" in finding.message
    durable = DurableStore(config.storage.url, node=1, reactor=Clock(), now=lambda: 1, executor=SynchronousExecutor())
    with pytest.raises(StoreDamaged):
        durable.open()


def listening(config: Config, *endpoints: str) -> Config:
    listeners = {f"l{n}": evolve(config.listeners["default"], endpoint=each) for n, each in enumerate(endpoints)}
    return evolve(config, listeners=listeners, admin=evolve(config.admin, endpoint=""))


def test_a_port_in_use(config: Config, tmp_path: Path) -> None:
    taken_path = tmp_path / "s"
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as taken_file:
        taken_file.bind(str(taken_path))
        taken_file.listen()
        port = taken.getsockname()[1]
        used = listening(config, f"tcp:{port}:interface=127.0.0.1", f"unix:{taken_path}")
        found = list(examination.ports(used))
        assert [one.subject for one in found] == ["listeners.l0.endpoint", "listeners.l1.endpoint"]
        assert all("another program uses it; the broker does not start" in one.message for one in found)
        admin = evolve(used, listeners={}, admin=evolve(config.admin, endpoint=f"tcp:{port}:interface=127.0.0.1"))
        assert [one.subject for one in examination.ports(admin)] == ["admin.endpoint"]
    assert told(examination.ports(used)) == NOTHING  # a socket that nobody serves is replaced


def test_an_address_that_this_machine_does_not_have(config: Config) -> None:
    [line] = told(examination.ports(listening(config, "tcp:1883:interface=192.0.2.1")))
    assert line.startswith("problem: tcp:1883:interface=192.0.2.1: Cannot assign requested address; the listener waits")
    assert (
        told(examination.ports(listening(config, "tcp:0:interface=192.0.2.1", "systemd:domain=INET:index=0")))
        == NOTHING
    )


def test_a_folder_without_which_a_socket_cannot_be_made(config: Config, tmp_path: Path) -> None:
    [line] = told(examination.ports(listening(config, f"unix:{tmp_path}/nowhere/s")))
    assert f"no folder that can be written: {tmp_path}/nowhere" in line


def test_the_same_finding_for_several_listeners_is_one(config: Config) -> None:
    opened = evolve(config.listeners["default"], endpoint="tcp:1883", allow_anonymous=True)
    exposed = evolve(config, listeners=dict.fromkeys(("a", "b", "c", "d"), opened))
    [finding] = examine(exposed, [examination.unlimited_users])
    assert finding.subject == "listeners.a, listeners.b, listeners.c, listeners.d"


def test_a_data_directory_of_another_user(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(examination.data_directory(config)) == NOTHING
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(config.data_dir).st_uid + 1)
    [finding] = examination.data_directory(config)
    assert finding.subject == str(config.data_dir)
    assert "a broker of this user cannot use it" in finding.message


@pytest.mark.parametrize(
    ("owner", "mode", "count"), [(4711, 0o600, 0), (0, 0o600, 1), (0, 0o644, 0), (0, 0o640, 1)], ids=str
)
def test_a_file_that_root_can_read_but_the_broker_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, count: int
) -> None:
    """The broker's user is the owner of its data directory."""
    file, users = tmp_path / "holdfast.toml", tmp_path / "passwords"
    file.write_text('[node]\ndata_dir = "data"\n[authentication.passwords]\ntype = "file"\npath = "passwords"\n')
    users.write_text("")
    config = load(file)
    config.data_dir.mkdir()
    real = Path.stat
    owners = {config.data_dir: (4711, 0o40700), file: (0, 0o100644), users: (owner, 0o100000 | mode)}

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = list(real(path, **options))
        if path in owners:
            found[4], found[0] = owners[path]
            found[5] = found[4]
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [one.subject for one in examination.named_files(config)] == [str(users)] * count


def test_listeners_that_everyone_can_reach(config: Config) -> None:
    assert told(examination.unlimited_connections(config)) == NOTHING
    opened = evolve(config.listeners["default"], endpoint="tcp:1883", allow_anonymous=True)
    exposed = evolve(config, listeners={"field": opened})
    assert [one.subject for one in examination.open_to_everyone(exposed)] == ["listeners.field.allow_anonymous"]
    assert [one.subject for one in examination.unlimited_connections(exposed)] == [
        "listeners.field.max_connections_per_address"
    ]
    [rights] = examination.unlimited_rights(exposed)
    assert (rights.subject, rights.weight) == ("authorization", Weight.PROBLEM)
    assert told(examination.unlimited_rights(config)) == NOTHING


def test_limits_for_strangers_that_are_missing(config: Config) -> None:
    assert told(examination.unlimited_users(config)) == told(examination.unlimited_memory(config)) == NOTHING
    exposed = evolve(config, listeners={"field": evolve(config.listeners["default"], endpoint="tcp:1883", zone="z")})
    exposed = evolve(exposed, zones={"z": ZoneOverrides(limits={"max_sessions": 5})})
    [finding] = examination.unlimited_users(exposed)
    assert finding.weight is Weight.ADVICE
    assert "[zones.z.limits] leaves max_waiting_bytes, max_retained_messages, " in finding.message
    assert "guests_max_sessions" in finding.message
    assert [one.subject for one in examination.unlimited_memory(exposed)] == ["limits.memory"]


def test_the_example_for_the_internet_limits_strangers() -> None:
    example = load(Path(__file__).parents[2] / "etc" / "examples" / "internet.toml")
    for check in (
        examination.open_to_everyone,
        examination.plain_text,
        examination.unlimited_connections,
        examination.unlimited_users,
        examination.unlimited_memory,
        examination.unlimited_rights,
    ):
        assert told(check(example)) == NOTHING, check


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(config: Config) -> None:
    def broken(_config: Config) -> Iterator[Finding]:
        raise PermissionError("no")

    checks: list[Callable[[Config], Iterator[Finding]]] = [broken, lambda _: examination.open_to_everyone(config)]
    [finding] = examine(config, checks)
    assert (finding.subject, finding.weight) == ("broken", Weight.PROBLEM)


def with_tls(config: Config, folder: Path, issued: Issued) -> Config:
    certificate, key = issued.write(folder, "broker")
    tls = TLSConfig(certificate=str(certificate), key=str(key))
    return evolve(config, listeners={"default": evolve(config.listeners["default"], tls=tls)})


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (90, NOTHING),
        (15, ["advice: it expires in 15 days"]),
        (3, ["problem: it expires in 3 days"]),
        (-1, ["problem: it has expired"]),
    ],
)
def test_the_end_of_a_certificate(config: Config, tmp_path: Path, days: float, expected: list[str]) -> None:
    issued = Authority().issue("localhost", ["localhost"], days=days, since=5)
    found = told(examination.certificates(with_tls(config, tmp_path, issued)))
    assert [line.startswith(start) for line, start in zip(found, expected, strict=True)] == [True] * len(expected)


def test_a_certificate_without_an_alternative_name(config: Config, tmp_path: Path) -> None:
    [line] = told(examination.certificates(with_tls(config, tmp_path, Authority().issue("localhost"))))
    assert line.startswith("advice: it has no alternative name")


def test_a_chain_in_the_wrong_order(config: Config, tmp_path: Path) -> None:
    root = Authority("Root")
    middle = Authority("Middle", root)
    issued = middle.issue("localhost", ["localhost"])
    right = Issued(issued.certificate, issued.key, [middle.certificate, root.certificate])
    assert told(examination.certificates(with_tls(config, tmp_path, right))) == NOTHING
    wrong = Issued(issued.certificate, issued.key, [root.certificate, middle.certificate])
    [line] = told(examination.certificates(with_tls(config, tmp_path, wrong)))
    assert line.startswith("problem: the certificate of 'CN=localhost' is not issued by the next one in the file")


def test_a_certificate_that_cannot_be_used(config: Config, tmp_path: Path) -> None:
    spoiled = with_tls(config, tmp_path, Authority().issue("localhost", ["localhost"]))
    (tmp_path / "broker.key").unlink()
    [finding] = examination.certificates(spoiled)
    assert finding.subject == "listeners.default.tls.key"


def test_a_listener_that_a_running_broker_has_not_opened_has_its_reason(config: Config) -> None:
    late = listening(config, "tcp:1883:interface=192.0.2.1", "tcp:0:interface=127.0.0.1")
    missing, unknown = examination.late_listeners(late, ["l0", "l1"])
    assert "the listener waits for its address" in missing.message
    assert (unknown.subject, unknown.message) == ("listeners.l1", "it does not listen yet")
