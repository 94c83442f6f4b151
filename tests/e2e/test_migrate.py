"""Another broker moves in: Holdfast starts by the written files, and every client may do the same as before."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from paho.mqtt.enums import CallbackAPIVersion

from holdfast.identity.hashes import HashParameters, new_hash
from holdfast.identity.rules import Action
from tests.certificates import CLIENT, Authority
from tests.e2e.mosquitto import PROGRAM, Client
from tests.moving.dynamic_security_files import TOPICS, USERS, files
from tests.moving.test_dynamic_security import permissions
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e]

MIGRATE = (HOLDFAST_RUN[0], "migrate")
PASSWORDS = {"sensor": "left-7", "dashboard": "over/there"}


def migrated(folder: Path, kind: str, *arguments: str) -> Path:
    """Run the command; return the folder of the new files."""
    command = [*MIGRATE, kind, *arguments, "--out", "moved"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    out = folder / "moved"
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    return out


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Path], BrokerProcess]]:
    """Start a broker by the files of a folder."""
    with contextlib.ExitStack() as ends:

        def start(out: Path) -> BrokerProcess:
            config = str(out / "holdfast.toml")
            broker = BrokerProcess(out, "--config", config, listen=False, program=HOLDFAST_RUN)
            ends.callback(broker.end)
            return broker.start()

        yield start


class Paho:
    """A client of paho, connected or refused."""

    def __init__(
        self,
        port: int,
        user: str | None,
        password: str | None,
        transport: Any = "tcp",
        tls: tuple[Path, Path, Path] | None = None,
    ) -> None:
        self.codes: list[int] = []
        self.granted: list[int] = []
        self.received: list[str] = []
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, "", protocol=mqtt.MQTTv311, transport=transport)
        if user is not None:
            self._client.username_pw_set(user, password)
        if tls is not None:
            authority, certificate, key = map(str, tls)
            self._client.tls_set(authority, certificate, key)
        self._client.on_connect = lambda _c, _u, _f, code, _p: self.codes.append(code.value)
        self._client.on_subscribe = lambda _c, _u, _m, codes, _p: self.granted.extend(code.value for code in codes)
        self._client.on_message = lambda _c, _u, message: self.received.append(message.topic)
        self._client.connect("localhost" if tls else "127.0.0.1", port)
        self.until(lambda: bool(self.codes))

    @property
    def is_connected(self) -> bool:
        return self.codes == [0]

    def subscribe(self, topic_filter: str) -> None:
        self._client.subscribe(topic_filter, 1)
        self.until(lambda: bool(self.granted))

    def publish(self, topic: str) -> None:
        sent = self._client.publish(topic, b"x", 1)
        self.until(sent.is_published)

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < deadline
            self._client.loop(0.05)

    def close(self) -> None:
        self._client.disconnect()


def test_a_broker_starts_by_the_written_files_and_admits_and_allows_the_same(
    tmp_path: Path, started: Callable[[Path], BrokerProcess]
) -> None:
    first, second = lasting_port(), lasting_port()
    (tmp_path / "passwd").write_text(
        "".join(f"{user}:{new_hash(word.encode(), HashParameters())}\n" for user, word in PASSWORDS.items())
    )
    (tmp_path / "acl").write_text("topic read weather/#\nuser dashboard\ntopic read #\npattern write sensors/%u/#\n")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "web.conf").write_text(f"listener {second} 127.0.0.1\nprotocol websockets\nmax_qos 1\n")
    (tmp_path / "mosquitto.conf").write_text(
        f"listener {first} 127.0.0.1\npassword_file {tmp_path}/passwd\nacl_file {tmp_path}/acl\n"
        f"allow_anonymous true\ninclude_dir {tmp_path}/conf.d\n"
    )
    out = migrated(tmp_path, "mosquitto", "mosquitto.conf")
    started(out)
    for port, transport in ((first, "tcp"), (second, "websockets")):
        assert not Paho(port, "sensor", "wrong", transport).is_connected
        assert not Paho(port, "nobody", "left-7", transport).is_connected
        dashboard = Paho(port, "dashboard", PASSWORDS["dashboard"], transport)
        sensor = Paho(port, "sensor", PASSWORDS["sensor"], transport)
        guest = Paho(port, None, None, transport)
        assert dashboard.is_connected
        assert sensor.is_connected
        assert guest.is_connected
        dashboard.subscribe("#")
        guest.publish("weather/now")  # guests may only read
        sensor.publish("sensors/cellar/t")  # of another user
        sensor.publish("sensors/sensor/t")
        dashboard.until(lambda client=dashboard: bool(client.received))  # type: ignore[misc]
        assert dashboard.received == ["sensors/sensor/t"]
        for client in (dashboard, sensor, guest):
            client.close()


def conf(folder: Path, first: int, second: int, third: int) -> str:
    """Return a mosquitto.conf with three listeners that admit and allow different things."""
    return (
        f"per_listener_settings true\n"
        f"listener {first} 127.0.0.1\npassword_file {folder}/passwd\nacl_file {folder}/acl\n"
        f"listener {second} 127.0.0.1\nallow_anonymous true\nacl_file {folder}/guests\n"
        f"listener {third} 127.0.0.1\npassword_file {folder}/passwd\nallow_anonymous true\n"
    )


def test_listeners_with_settings_of_their_own_are_those_of_a_real_mosquitto(
    tmp_path: Path, started: Callable[[Path], BrokerProcess]
) -> None:
    if PROGRAM is None:
        pytest.skip("mosquitto is not installed")
    for user, password in PASSWORDS.items():
        salt = b"a salt of 12"
        digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
        with (tmp_path / "passwd").open("a") as file:
            file.write(f"{user}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n")
    (tmp_path / "acl").write_text("user dashboard\ntopic readwrite #\npattern write sensors/%u/#\n")
    (tmp_path / "guests").write_text("topic read weather/#\ntopic write inbox\n")
    for name in ("passwd", "acl", "guests"):
        (tmp_path / name).chmod(0o600)
    theirs, ours = ([lasting_port() for _ in range(3)] for _ in range(2))
    (tmp_path / "theirs.conf").write_text(f"user root\n{conf(tmp_path, *theirs)}")
    (tmp_path / "mosquitto.conf").write_text(conf(tmp_path, *ours))
    started(migrated(tmp_path, "mosquitto", "mosquitto.conf"))
    logins: list[tuple[str | None, str | None]] = [(None, None), *PASSWORDS.items()]
    logins += [("sensor", "wrong"), ("nobody", "wrong")]
    with subprocess.Popen([PROGRAM, "-c", str(tmp_path / "theirs.conf")], stderr=subprocess.DEVNULL) as process:
        try:
            for port in theirs:
                wait_for(port)
            for login, word in logins:
                # The second listener verifies no password: there mosquitto believes any name, and Holdfast none.
                numbers = range(3) if login is None else (0, 2)
                found = [[tried(ports, number, login, word) for number in numbers] for ports in (theirs, ours)]
                assert found[0] == found[1], login
        finally:
            process.kill()


def tried(ports: list[int], number: int, user: str | None, password: str | None) -> tuple[set[str], set[str]] | None:
    """Return the topics that a client may publish and receive through one listener; None if it is refused."""
    topics = ("weather/now", "inbox", "sensors/sensor/t", "sensors/dashboard/t")
    try:
        client = Client(ports[number], user, "tried", password)
    except PermissionError:
        return None
    with (
        contextlib.closing(client),
        contextlib.closing(Client(ports[0], "dashboard", "admin", PASSWORDS["dashboard"])) as admin,
    ):
        published = {topic for topic in topics if client.may_publish(topic)}
        client.subscribe("#")
        for topic in topics:
            assert admin.may_publish(topic)
        return published, set(client.received_so_far())


def test_client_certificates_name_the_users_of_a_migrated_listener(
    tmp_path: Path, started: Callable[[Path], BrokerProcess]
) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.chain)
    authority.issue(names=["localhost"]).write(tmp_path, "broker")
    authority.issue("meter", usage=CLIENT).write(tmp_path, "meter")
    port = lasting_port()
    (tmp_path / "acl").write_text("pattern readwrite %u/#\n")
    (tmp_path / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\ncafile ca.pem\ncertfile broker.pem\nkeyfile broker.key\n"
        "require_certificate true\nuse_identity_as_username true\nacl_file acl\n"
    )
    started(migrated(tmp_path, "mosquitto", "mosquitto.conf"))
    meter = Paho(port, "another", "ignored", tls=(tmp_path / "ca.pem", tmp_path / "meter.pem", tmp_path / "meter.key"))
    assert meter.is_connected
    meter.subscribe("#")
    meter.publish("another/t")
    meter.publish("meter/t")
    meter.until(lambda: bool(meter.received))
    assert meter.received == ["meter/t"]
    meter.close()


def test_a_mosquitto_without_listener_becomes_one_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text("persistence true\n")
    out = migrated(tmp_path, "mosquitto", "mosquitto.conf")
    assert '"tcp:1883:interface=127.0.0.1"' in (out / "holdfast.toml").read_text()


# Dynamic security, with a real mosquitto.

PLUGIN = next(
    (
        path
        for folder in (Path(PROGRAM).parent if PROGRAM else Path("/usr/lib"), Path("/usr/lib"), Path("/usr/local/lib"))
        for path in (folder / "mosquitto_dynamic_security.so", *folder.glob("*/mosquitto_dynamic_security.so"))
        if path.exists()
    ),
    None,
)
needs_plugin = pytest.mark.skipif(PLUGIN is None, reason="mosquitto's plugin dynamic-security is not installed")


def with_passwords(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the file with passwords, which are the names, and with an admin who may do everything."""
    everything = ("publishClientSend", "publishClientReceive", "subscribePattern")
    admin = {"rolename": "all", "acls": [{"acltype": kind, "topic": "#", "allow": True} for kind in everything]}
    clients = [*tree["clients"], {"username": "admin", "roles": [{"rolename": "all"}]}]
    salt = b"a salt of 12"
    for client in clients:
        digest = hashlib.pbkdf2_hmac("sha512", client["username"].encode(), salt, 101)
        client["salt"] = base64.b64encode(salt).decode()
        client["password"] = base64.b64encode(digest).decode()
        client["iterations"] = 101
    return {**tree, "clients": clients, "roles": [*tree["roles"], admin]}


def asked(port: int, user: str | None) -> tuple[set[str], set[str], set[str]]:
    """Return the topics that mosquitto lets a client publish, subscribe and receive."""
    seen = [topic for topic in TOPICS if topic[0] != "$"]
    with (
        contextlib.closing(Client(port, user, "c", user)) as client,
        contextlib.closing(Client(port, "admin", "admin", "admin")) as admin,
    ):
        published = {topic for topic in seen if client.may_publish(topic)}
        subscribed = {topic for topic in TOPICS if client.may_subscribe(topic)}
        client.received_so_far()
        client.received.clear()
        for topic in seen:
            assert admin.may_publish(topic)
        return published, subscribed, set(client.received_so_far())


@needs_plugin
@pytest.mark.parametrize("number", range(6))
def test_verdicts_are_those_of_a_real_mosquitto(tmp_path: Path, number: int) -> None:
    """Each file with its own mosquitto: it reads the file at its start only."""
    examples: list[dict[str, Any]] = []

    @seed(number)
    @settings(max_examples=12, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(tree=files())
    def collect(tree: dict[str, Any]) -> None:
        examples.append(tree)

    collect()
    tree = with_passwords(random.Random(number).choice(examples[-6:]))
    port = lasting_port()
    (tmp_path / "dynamic-security.json").write_text(json.dumps(tree))
    (tmp_path / "mosquitto.conf").write_text(
        f"user root\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
        f"plugin {PLUGIN}\nplugin_opt_config_file {tmp_path}/dynamic-security.json\n"
    )
    with subprocess.Popen(
        [str(PROGRAM), "-c", str(tmp_path / "mosquitto.conf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(port)
            for user in (*USERS, None):
                found = permissions(tmp_path, tree, user)
                published, subscribed, received = asked(port, user)
                assert published == {
                    topic for topic in TOPICS if topic[0] != "$" and found.allows(Action.PUBLISH, topic)
                }
                assert subscribed == {topic for topic in TOPICS if found.allows(Action.SUBSCRIBE, topic)}
                assert received == {
                    topic for topic in TOPICS if topic[0] != "$" and found.allows(Action.RECEIVE, topic)
                }
        finally:
            process.kill()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        assert time.monotonic() < deadline, "mosquitto does not start"
        time.sleep(0.05)


@needs_plugin
def test_a_broker_with_the_users_of_dynamic_security_admits_them(
    tmp_path: Path, started: Callable[[Path], BrokerProcess]
) -> None:
    port = lasting_port()
    tree = with_passwords({"clients": [], "groups": [], "roles": []})
    (tmp_path / "dynamic-security.json").write_text(json.dumps(tree))
    (tmp_path / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nplugin {PLUGIN}\nplugin_opt_config_file {tmp_path}/dynamic-security.json\n"
    )
    started(migrated(tmp_path, "mosquitto", "mosquitto.conf"))
    assert not Paho(port, "admin", "wrong").is_connected
    admin = Paho(port, "admin", "admin")
    assert admin.is_connected
    admin.subscribe("#")
    admin.publish("a/b")
    admin.until(lambda: admin.received == ["a/b"])
    admin.close()
