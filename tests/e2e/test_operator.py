"""Operators' commands on a real broker, through its control socket or without a running broker."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.admin.address import SocketAddress
from tests.paho import PahoClient
from tests.processes import BrokerProcess, unmeasured

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]


def holdfast(folder: Path, *arguments: str, given: bytes = b"") -> tuple[int, bytes, str]:
    """Run ``holdfast``; return exit status, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.commands", *arguments],
        cwd=folder, input=given, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.decode()


def said(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Run a command that succeeds; return its output."""
    status, out, errors = holdfast(folder, *arguments, given=given)
    assert status == 0, errors
    return out


def without_revisions(exported: bytes) -> list[dict[str, object]]:
    return [{**json.loads(line), "revision": None} for line in exported.splitlines()]


def test_changes_by_commands_reach_present_subscribers(broker_in: Brokers, storage: tuple[str, ...]) -> None:
    """Set, clean and a quiet change, with a client that is there and one that is away."""
    broker = broker_in(*storage).start()
    folder = broker.directory
    present = PahoClient(broker.port, 5)
    present.subscribe("plant/#", qos=1)
    away = PahoClient(broker.port, 4, "away", clean=False)
    away.subscribe("plant/#", qos=1)
    away.close()
    assert said(folder, "retainer", "set", *storage, "plant/1", "on", "--qos", "1") == b""
    assert said(folder, "retainer", "set", *storage, "plant/2", "quiet", "--quiet") == b""
    assert said(folder, "retainer", "clean", *storage, "plant/1") == b"1 cleared\n"
    assert said(folder, "retainer", "clean", *storage, "plant/#", "--quiet") == b"1 cleared\n"
    assert present.messages(2) == [("plant/1", b"on", 1, False), ("plant/1", b"", 1, False)]
    assert present.quiet()
    back = PahoClient(broker.port, 4, "away", clean=False)
    assert back.messages(1) == [("plant/1", b"", 1, False)]
    assert back.quiet()
    present.close()
    back.close()


def test_export_wipe_import_running_and_stopped(broker_in: Brokers, storage: tuple[str, ...]) -> None:
    """Clients get the imported messages byte for byte, with and without a running broker."""
    broker = broker_in(*storage).start()
    folder = broker.directory
    control = folder / "data" / "control.sock"
    assert stat.S_IMODE(control.stat().st_mode) == 0o600
    publisher = PahoClient(broker.port, 5, "publisher")
    publisher.publish("a/binary", bytes(range(256)), retain=True)
    publisher.publish("a/é ☃", b"\n", qos=2, retain=True)
    publisher.publish("b", b"x", retain=True)
    exported = said(folder, "retainer", "export", *storage)
    assert [json.loads(line)["client_id"] for line in exported.splitlines()] == ["publisher"] * 3
    assert said(folder, "retainer", "clean", *storage, "#") == b"3 cleared\n"
    late = PahoClient(broker.port, 5)
    late.subscribe("#")
    assert late.quiet()
    assert holdfast(folder, "retainer", "import", *storage, "-", "--merge", "replace", given=exported)[0] == 0
    assert late.quiet()
    late.subscribe("a/#")
    assert [message[:2] for message in late.messages(2)] == [("a/binary", bytes(range(256))), ("a/é ☃", b"\n")]
    assert without_revisions(said(folder, "retainer", "export", *storage)) == without_revisions(exported)
    publisher.close()
    late.close()
    assert broker.stop() == (0, "")
    assert not control.exists()
    assert without_revisions(said(folder, "retainer", "export", *storage)) == without_revisions(exported)
    assert said(folder, "retainer", "clean", *storage, "a/#") == b"2 cleared\n"
    assert said(folder, "retainer", "set", *storage, "c", "offline") == b""
    broker.start()
    client = PahoClient(broker.port, 5)
    client.subscribe("#", qos=1)
    assert [message[:2] for message in client.messages(2)] == [("b", b"x"), ("c", b"offline")]
    client.publish("c", b"live", retain=True)
    assert said(folder, "retainer", "get", *storage, "c", "--payload") == b"live"
    client.close()


def test_a_backup_of_a_running_broker(broker: BrokerProcess) -> None:
    folder = broker.directory
    for topic in ("a", "b"):
        said(folder, "retainer", "set", topic, "x")
    said(folder, "db", "backup", "b.db")
    said(folder, "retainer", "clean", "#")
    assert said(folder, "db", "verify", "b.db").splitlines()[-1] == b"b.db: good, with 2 retained messages"
    client = PahoClient(broker.port)
    client.publish("still", b"there", retain=True)
    client.close()
    assert broker.stop() == (0, "")


def test_a_command_and_its_broker_must_use_the_same_database(broker: BrokerProcess) -> None:
    """No command opens a database that a broker uses, or takes the answer of a broker with another database."""
    folder = broker.directory
    said(folder, "retainer", "set", "a", "x")
    url = f"sqlite:///{folder}/data/holdfast.db"
    assert said(folder, "retainer", "topics", "--storage", url) == b"a\n"
    status, out, errors = holdfast(folder, "retainer", "topics", "--storage", f"sqlite:///{folder}/other.db")
    assert (status, out, len(errors.splitlines())) == (1, b"", 1)
    assert "keeps its messages in sqlite:" in errors
    status, out, errors = holdfast(folder, "retainer", "topics", "--data-dir", "other", "--storage", url)
    assert (status, out, len(errors.splitlines())) == (1, b"", 1)
    assert "is locked by another process" in errors


def test_commands_work_after_the_broker_was_killed(broker: BrokerProcess) -> None:
    folder = broker.directory
    said(folder, "retainer", "set", "a", "x")
    broker.kill()
    assert (folder / "data" / "control.sock").exists()
    assert said(folder, "retainer", "topics") == b"a\n"
    broker.start()
    assert said(folder, "retainer", "topics") == b"a\n"


def test_the_broker_can_stop_during_an_export(broker: BrokerProcess) -> None:
    """This is true even if the reader takes nothing. The reader notices that the export is incomplete."""
    folder = broker.directory
    lines = b"".join(
        json.dumps({"topic": f"t/{number}", "payload": "eHh4" * 2500}).encode() + b"\n" for number in range(1000)
    )
    said(folder, "retainer", "import", "-", given=lines)
    address = SocketAddress(folder / "data" / "control.sock")
    with socket.socket(socket.AF_UNIX) as reader:
        reader.connect(address.text)
        address.close()
        reader.sendall(b"GET /api/v5/mqtt/retainer/export HTTP/1.1\r\nHost: x\r\n\r\n")
        received = reader.recv(1000)
        assert received.startswith(b"HTTP/1.1 200")
        assert broker.stop() == (0, "")
        while piece := _received(reader):
            received = received[-10:] + piece
    assert not received.endswith(b"0\r\n\r\n")
    assert not os.path.lexists(folder / "data" / "control.sock")


def _received(reader: socket.socket) -> bytes:
    try:
        return reader.recv(1 << 20)
    except ConnectionResetError:
        return b""


def test_a_call_to_a_running_broker_imports_only_a_client(broker_in: Brokers) -> None:
    """Neither the broker nor its database: this bounds the time of a call, which cannot be tested by the clock."""
    folder = broker_in().start().directory
    program = (
        "import atexit, sys; atexit.register(lambda: print('\\n', len(sys.modules), sorted("
        "{'rich', 'sqlalchemy', 'sqlite3', 'twisted', 'zope.interface'} & set(sys.modules)))); "
        "from holdfast.commands import main; main()"
    )
    for call in (("info",), ("topics",), ("replays",), ("settings",), ("clean", "a/#"), ("set", "a", "b")):
        command = [sys.executable, "-c", program, "retainer", *call]
        done = subprocess.run(command, cwd=folder, env=unmeasured(), capture_output=True, text=True, check=True)
        count, _, heavy = done.stdout.splitlines()[-1].strip().partition(" ")
        assert (int(count) < 300, heavy) == (True, "[]"), call


def test_messages_of_clients_that_are_gone_are_cleared(broker: BrokerProcess) -> None:
    """Subscribers get empty messages. The old message of a client that is connected stays."""
    folder = broker.directory
    here = PahoClient(broker.port, 5, "here")
    lines = [
        {"topic": f"{name}/config", "payload": "eA==", "client_id": name, "stored_at": 1_600_000_000_000}
        for name in ("ghost", "here")
    ]
    said(folder, "retainer", "import", "-", given=b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    watcher = PahoClient(broker.port, 5)
    watcher.subscribe("ghost/#", qos=1)
    assert watcher.messages(1) == [("ghost/config", b"x", 0, True)]
    listed = said(folder, "retainer", "orphans")
    assert listed.split()[1:] == [b"ghost", b"ghost/config"]
    assert said(folder, "retainer", "clean", "#", "--orphans", "--dry-run") == b"1 would be cleared\n"
    assert said(folder, "retainer", "clean", "#", "--orphans") == b"1 cleared\n"
    assert watcher.messages(1) == [("ghost/config", b"", 1, False)]
    assert said(folder, "retainer", "topics") == b"here/config\n"
    here.close()
    watcher.close()
