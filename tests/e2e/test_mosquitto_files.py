"""The password file and the ACL file of a mosquitto: Holdfast admits and allows the same, and changes neither."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.e2e.mosquitto import PROGRAM, Client
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")]

PAGE = (
    (ROOT / "docs" / "operator" / "security.md")
    .read_text(encoding="utf-8")
    .partition("\n## Coming from mosquitto\n")[2]
)
ACL = (ROOT / "etc" / "examples" / "mosquitto.acl").read_text() + "\nuser admin\ntopic readwrite #\n"
USERS = {"kitchen": "left-7", "dashboard": "over/there", "admin": "p w"}
TOPICS = ("weather/now", "sensors/kitchen/t", "sensors/kitchen/secret", "sensors/cellar/t", "house/door")
GUEST, WRONG = None, "wrong"
LOGINS = [
    (GUEST, None),
    ("kitchen", USERS["kitchen"]),
    ("dashboard", USERS["dashboard"]),
    ("admin", USERS["admin"]),
    ("kitchen", WRONG),
    ("kitchen", None),
    ("nobody", WRONG),
]


class Brokers:
    """A mosquitto and a Holdfast with the same two files, configured as the page shows."""

    def __init__(self, folder: Path, ends: contextlib.ExitStack) -> None:
        self.files = [folder / "passwd", folder / "acl"]
        passwd, acl = self.files
        for user, password in USERS.items():
            created = [] if passwd.exists() else ["-c"]
            subprocess.run(["mosquitto_passwd", *created, "-b", passwd, user, password], check=True)
        assert passwd.read_text().count(":$7$") == len(USERS)
        acl.write_text(ACL)
        acl.chmod(0o600)
        self.before = [file.read_bytes() for file in self.files]
        self.ports = {"mosquitto": lasting_port(), "Holdfast": lasting_port()}

        def shown(language: str, port: int) -> str:
            found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
            assert found is not None
            text = found[1].replace("/etc/mosquitto", str(folder)).replace("/var/lib/holdfast", str(folder / "data"))
            return text.replace("1883", str(port))

        (folder / "mosquitto.conf").write_text("user root\n" + shown("conf", self.ports["mosquitto"]))
        (folder / "holdfast.toml").write_text(shown("toml", self.ports["Holdfast"]))
        mosquitto = subprocess.Popen(
            [str(PROGRAM), "-c", str(folder / "mosquitto.conf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        ends.callback(mosquitto.wait)
        ends.callback(mosquitto.kill)
        holdfast = BrokerProcess(folder, "--config", "holdfast.toml", listen=False, program=HOLDFAST_RUN)
        ends.callback(holdfast.end)
        holdfast.start()
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                Client(self.ports["mosquitto"], GUEST, "first").close()
                return
            assert time.monotonic() < deadline, "mosquitto does not start"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with contextlib.ExitStack() as ends:
        yield Brokers(tmp_path_factory.mktemp("mosquitto"), ends)


def tried(port: int, username: str | None, password: str | None) -> tuple[set[str], set[str]] | None:
    """Return the topics that a client may publish to, and those that it receives; None if it is not admitted."""
    try:
        client = Client(port, username, "tried", password)
    except PermissionError:
        return None
    with contextlib.closing(client), contextlib.closing(Client(port, "admin", "admin", USERS["admin"])) as admin:
        written = {topic for topic in TOPICS if client.may_publish(topic)}
        client.subscribe("#")
        for topic in TOPICS:
            assert admin.may_publish(topic)
        return written, client.received_so_far()


@pytest.mark.parametrize(("username", "password"), LOGINS)
def test_each_client_may_do_with_both_brokers_the_same(
    brokers: Brokers, username: str | None, password: str | None
) -> None:
    mosquitto, holdfast = (tried(port, username, password) for port in brokers.ports.values())
    assert holdfast == mosquitto
    right = username is GUEST or password == USERS.get(username)
    assert (holdfast is not None) == right
    expected = {
        GUEST: (set(), {"weather/now"}),
        "kitchen": ({"sensors/kitchen/t", "sensors/kitchen/secret"}, set()),
        "dashboard": (set(), {"sensors/kitchen/t", "sensors/cellar/t"}),
        "admin": (set(TOPICS), set(TOPICS)),
    }
    assert holdfast == (expected[username] if right else None)
    assert [file.read_bytes() for file in brokers.files] == brokers.before
