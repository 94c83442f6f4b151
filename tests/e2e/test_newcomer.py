"""A newcomer's walk through the operator's pages: what they show is what comes, in a fresh folder."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.commands.retainer_replays import _HEADINGS
from tests.docs.pages import ROOT, blocks
from tests.paho import PahoClient
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

OPERATOR = ROOT / "docs" / "operator"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Newcomer:
    """Types the commands of a page in a shell, in the folder of a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir(parents=True)
        program = programs / "holdfast"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast.commands "$@"\n')
        program.chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}

    def types(self, command: str, status: int = 0) -> str:
        """Return the output of a command, which ends with the status."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        assert done.returncode == status, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr


@pytest.fixture
def walk(broker_in: Callable[..., BrokerProcess]) -> Iterator[tuple[Newcomer, BrokerProcess, list[str]]]:
    """A newcomer beside a broker that keeps the history of the page on it, and the texts of that page's blocks."""
    texts = [block.text for block in blocks(OPERATOR / "history.md")]
    broker = broker_in("--config", "holdfast.toml")
    (broker.directory / "holdfast.toml").write_text(texts[0])
    broker.start()
    yield Newcomer(broker.directory), broker, texts
    broker.stop()


def test_the_page_on_history(walk: tuple[Newcomer, BrokerProcess, list[str]]) -> None:
    """Its list looks as shown, its commands bring back what was cleared, and its SQL runs."""
    newcomer, broker, texts = walk
    alice, bob = PahoClient(broker.port, 5, "alice"), PahoClient(broker.port, 5, "bob")
    alice.publish("house/garage", b"open", qos=1, retain=True)
    bob.publish("house/garage", b"", qos=1, retain=True)
    listing, getting = (text for text in texts if text.startswith("holdfast retainer"))
    shown = next(text for text in texts if _TIME.match(text)).replace(" (a.smith)", "")
    said = newcomer.types(listing)
    assert _TIME.sub("TIME", said) == _TIME.sub("TIME", shown)
    opened = _TIME.findall(said)[1]
    getting = re.sub(r"--at \S+", f"--at {opened}", getting)
    topics, got, *_, restore = getting.splitlines()
    assert newcomer.types(topics) == "house/garage\n"
    assert json.loads(newcomer.types(got))["payload"] == "b3Blbg=="
    assert "1 would be restored" in newcomer.types(getting.replace(restore, f"{restore} --yes"))
    assert newcomer.types("holdfast retainer get house/garage --payload") == "open"
    statements = [block.text for block in blocks(OPERATOR / "history.md") if block.language == "sql"]
    assert len(statements) == 4
    with sqlite3.connect(newcomer.folder / "data" / "holdfast.db") as connection:
        for statement in statements:
            assert connection.execute(statement, {"at": 10**13}).fetchall(), statement


def test_the_pages_on_commands_and_on_installing(walk: tuple[Newcomer, BrokerProcess, list[str]]) -> None:
    """The lines of an export and of a refused import, the call with curl, the view in SQL, and the line of the log."""
    newcomer, broker, _ = walk
    texts = {block.language or block.text.split()[0]: block.text for block in blocks(OPERATOR / "commands.md")}
    (newcomer.folder / "messages.ndjson").write_text("{}\n" + texts["json"])
    importing, _mending = next(
        block.text for block in blocks(OPERATOR / "commands.md") if "--rejects" in block.text
    ).splitlines()
    assert "1 line refused; see rejects.ndjson" in newcomer.types(importing, status=3)
    (reject,) = map(json.loads, (newcomer.folder / "rejects.ndjson").read_text().splitlines())
    assert (reject["line"], reject["text"]) == (1, "{}")
    exported = json.loads(newcomer.types("holdfast retainer export 2> /dev/null"))
    assert exported.keys() == json.loads(texts["json"]).keys()
    assert json.loads(newcomer.types(texts["curl"].replace("curl", "curl -s").replace("a/+/b", "a/+")))["data"]
    select = next(block.text for block in blocks(OPERATOR / "install.md") if "SELECT" in block.text)
    with sqlite3.connect(newcomer.folder / "data" / "holdfast.db") as connection:
        columns = [one[0] for one in connection.execute(select.split("'")[1]).description]
    assert columns == ["topic", "qos", "size", "client_id", "stored_at"]
    view = re.search(r"`retained_messages\((.*?)\)`", (OPERATOR / "install.md").read_text(), re.DOTALL)
    assert view is not None
    with sqlite3.connect(newcomer.folder / "data" / "holdfast.db") as connection:
        found = [one[0] for one in connection.execute("SELECT * FROM retained_messages").description]
    assert found == re.findall(r"\w+", view[1])
    # install.md: the first line of the log after "ready"
    ready = broker.wait_for("Holdfast ")
    assert broker.lines.index("ready") == broker.lines.index(ready) - 1
    assert all(word in ready for word in ("Holdfast", "store sqlite:", "durability full", "no loss"))


def test_the_page_on_replays(walk: tuple[Newcomer, BrokerProcess, list[str]]) -> None:
    """Its settings can be shown and changed, and its table has the columns of the command."""
    newcomer, _, _ = walk
    texts = [block.text for block in blocks(OPERATOR / "replays.md")]
    assert tuple(next(text for text in texts if text.startswith("ID")).splitlines()[0].split()) == _HEADINGS
    showing, changing = next(text for text in texts if "retainer settings" in text).splitlines()
    assert "until the broker ends" not in newcomer.types(showing)
    said = newcomer.types(changing)
    assert 'retainer.delivery_rate = "500/s"  # until the broker ends' in said
    assert 'retainer.flow_control.client_rate = "50/s"  # until the broker ends' in said
    assert newcomer.types("holdfast retainer replays") == "no replay is running\n"


def test_the_page_on_the_configuration(tmp_path: Path) -> None:
    """The problems of a file are printed as shown."""
    shown = next(block.text for block in blocks(OPERATOR / "configure.md") if block.language == "console")
    command, *problems = shown.splitlines()
    (tmp_path / "holdfast.toml").write_text("[node]\nid = 1\n[mqtt]\nmax_paket_size = 1\n\n\nmax_qos_allowed = 3\n")
    assert Newcomer(tmp_path).types(command.removeprefix("$ "), status=3).splitlines() == problems


def test_the_page_on_authentication(tmp_path: Path) -> None:
    """A user is added, and the configuration with the file of users is correct."""
    adding, checking, *_ = [block.text for block in blocks(OPERATOR / "authentication.md") if "sudo" in block.text]
    folder = str(tmp_path)
    configuration = next(block.text for block in blocks(OPERATOR / "authentication.md") if block.language == "toml")
    (tmp_path / "holdfast.toml").write_text(configuration.replace("/var/lib/holdfast", folder))

    def as_here(command: str) -> str:
        command = command.replace("sudo /opt/holdfast/bin/", "").replace("/var/lib/holdfast", folder)
        return command.replace("/etc/holdfast.toml", f"{folder}/holdfast.toml").strip()

    newcomer = Newcomer(tmp_path)
    assert "alice was added" in newcomer.types(f"echo secret | {as_here(adding)}")
    assert newcomer.types(as_here(checking)).endswith("ok\n")


def test_the_page_on_tls(tmp_path: Path) -> None:
    """certbot's hook copies a certificate and its renewal, for the broker's user only."""
    hook = next(block.text for block in blocks(OPERATOR / "tls.md") if "RENEWED_LINEAGE" in block.text)
    (tmp_path / "data").mkdir(mode=0o700)
    hook = hook.replace("/var/lib/holdfast", str(tmp_path / "data"))
    for content in ("first", "renewed"):
        for name in ("fullchain.pem", "privkey.pem"):
            (tmp_path / name).write_text(content)
        Newcomer(tmp_path / content).types(f"RENEWED_LINEAGE={tmp_path}; {hook}")
        copied = [tmp_path / "data" / "tls" / name for name in ("fullchain.pem", "privkey.pem")]
        assert [file.read_text() for file in copied] == [content, content]
        assert [file.stat().st_mode & 0o777 for file in copied] == [0o600, 0o600]
