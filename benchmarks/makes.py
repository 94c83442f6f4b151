"""The makes of brokers: their configuration in a temporary directory, and their start.

mosquitto has two configurations, each a broker of its own here: the default, and `set_tcp_nodelay true`. Which one is
faster depends on the row. The report takes the better one for each row.

Each broker has a listener of plain TCP. The devices of a fleet may have another one, of TLS 1.3 or WebSocket, or rules
that let each of them publish only below a level with its Client Identifier.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from getpass import getuser
from pathlib import Path

from benchmarks.brokers import Broker, Site, Unavailable
from benchmarks.generator import compiled
from tests.certificates import Authority
from tests.postgres import empty_database

#: The configurations of each make, by the name under which they are started.
MAKES = {
    "holdfast": ("holdfast",),
    "mosquitto": ("mosquitto", "mosquitto-nodelay"),
    "flashmq": ("flashmq",),
    "null": ("null",),
}
NULL = "null"
PLAIN, TLS, WEBSOCKET, RULES = TRANSPORTS = ("plain", "tls", "websocket", "rules")
AUTHORITY = "ca.pem"
_PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
# As root, mosquitto would become another user, who could not write its database.
_MOSQUITTO_CONF = """\
user {user}
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay {nodelay}
persistence {persistence}
persistence_location {directory}/
log_type none
"""
_FLASHMQ_CONF = """\
allow_anonymous true
thread_count 1
quiet true
log_file {directory}/flashmq.log
rlimit_nofile {files}
max_qos_msg_pending_per_client 65535
max_qos_bytes_pending_per_client 1000000000
client_max_write_buffer_size 1000000000
retained_messages_node_limit 100000000
listen {{
    protocol mqtt
    port {port}
    inet_protocol ip4
    inet4_bind_address 127.0.0.1
}}
"""
_HOUR = 3600
_MOSQUITTO_DEVICES = {
    TLS: """\
listener {device_port} 127.0.0.1
cafile {directory}/ca.pem
certfile {directory}/server.pem
keyfile {directory}/server.key
tls_version tlsv1.3
""",
    # Without socket_domain, a listener of WebSocket is open to the network.
    WEBSOCKET: "listener {device_port} 127.0.0.1\nprotocol websockets\nsocket_domain ipv4\n",
    RULES: "acl_file {directory}/acl\n",
}
_FLASHMQ_DEVICES = {
    TLS: """\
listen {{
    protocol mqtt
    port {device_port}
    inet_protocol ip4
    inet4_bind_address 127.0.0.1
    fullchain {directory}/server.pem
    privkey {directory}/server.key
}}
""",
    WEBSOCKET: """\
listen {{
    protocol websockets
    port {device_port}
    inet_protocol ip4
    inet4_bind_address 127.0.0.1
}}
""",
    RULES: "mosquitto_acl_file {directory}/acl\n",
}
_HOLDFAST_LISTENERS = """\
[listeners.default]
endpoint = "tcp:{port}:interface=127.0.0.1"
[listeners.devices]
endpoint = "tcp:{device_port}:interface=127.0.0.1"
"""
_HOLDFAST_DEVICES = {
    TLS: _HOLDFAST_LISTENERS
    + 'tls = {{ certificate = "{directory}/server.pem", key = "{directory}/server.key", minimum = "1.3" }}\n',
    WEBSOCKET: _HOLDFAST_LISTENERS + 'transport = "websocket"\n',
    RULES: '[authorization]\nsources = ["rules"]\n[authorization.rules]\ntype = "file"\npath = "rules.toml"\n',
}
#: The same rules in both languages. The clients that ping during the storm of a fleet publish to ping/#.
_ACL = "topic read #\ntopic write ping/#\npattern write fleet/+/%c/#\n"
_RULES = """\
[[rule]]
action = ["publish", "retain"]
topics = ["fleet/+/%c/#"]
allow = true
[[rule]]
action = ["publish"]
topics = ["ping/#"]
allow = true
[[rule]]
action = ["subscribe"]
topics = ["#"]
allow = true
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _program(name: str) -> str:
    program = shutil.which(name, path=_PATHS)
    if program is None:
        raise Unavailable(f"{name} is not installed")
    return program


def _devices(broker: Broker, transport: str, texts: Mapping[str, str]) -> str:
    """Write the files that the broker's configuration names, and return this part of the configuration."""
    directory = broker.directory
    if transport in (TLS, WEBSOCKET):
        broker.device_port = _free_port()
    if transport == TLS:
        authority = Authority()
        (directory / AUTHORITY).write_bytes(authority.chain)
        authority.issue(names=["localhost"]).write(directory, "server")
    if transport == RULES:
        for name, text in (("acl", _ACL), ("rules.toml", _RULES)):
            (directory / name).write_text(text)
            (directory / name).chmod(0o600)
    return texts.get(transport, "").format(port=broker.port, device_port=broker.device_port, directory=directory)


def _mosquitto(site: Site, directory: Path, durable: bool, transport: str, nodelay: bool) -> Broker:
    program, port = _program("mosquitto"), _free_port()
    configuration = _MOSQUITTO_CONF.format(
        user=getuser(),
        port=port,
        persistence=str(durable).lower(),
        directory=directory,
        nodelay=str(nodelay).lower(),
    )
    name = "mosquitto-nodelay" if nodelay else "mosquitto"
    broker = Broker(name, site, directory, port, [program, "-c", str(directory / "mosquitto.conf")])
    configuration += _devices(broker, transport, _MOSQUITTO_DEVICES)
    (directory / "mosquitto.conf").write_text(configuration)
    return broker


def _flashmq(site: Site, directory: Path, durable: bool, transport: str) -> Broker:
    program, port = _program("flashmq"), _free_port()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    configuration = _FLASHMQ_CONF.format(port=port, directory=directory, files=files)
    if durable:
        configuration += f"storage_dir {directory}\n"
    broker = Broker("flashmq", site, directory, port, [program, "-c", str(directory / "flashmq.conf")])
    configuration += _devices(broker, transport, _FLASHMQ_DEVICES)
    (directory / "flashmq.conf").write_text(configuration)
    return broker


def _holdfast(site: Site, directory: Path, _durable: bool, transport: str) -> Broker:
    twistd = Path(sys.executable).parent / "twistd"
    if not twistd.exists():
        raise Unavailable(f"no twistd beside {sys.executable}: run with the Python Holdfast is installed for")
    port = _free_port()
    command = [str(twistd), "-n", "--pidfile=", "holdfast", "--data-dir", str(directory / "data")]
    command += ["--listen", f"tcp:{port}:interface=127.0.0.1", *site.holdfast_args]
    database = empty_database() if site.postgres else None
    if database is not None:
        command += ["--storage", database]
    broker = Broker("holdfast", site, directory, port, command)
    broker.postgres = database
    configuration = _devices(broker, transport, _HOLDFAST_DEVICES)
    file = directory / "holdfast.toml"
    file.write_text(configuration)
    if transport == RULES:
        broker.add_options("--config", str(file))
    elif configuration:
        broker.listen_by(file)
    return broker


def _null(site: Site, directory: Path, _durable: bool, _transport: str) -> Broker:
    port = _free_port()
    return Broker(NULL, site, directory, port, [str(compiled()), "null", "--port", str(port), "--timeout", f"{_HOUR}"])


_STARTS: dict[str, Callable[[Site, Path, bool, str], Broker]] = {
    "holdfast": _holdfast,
    "mosquitto": partial(_mosquitto, nodelay=False),
    "mosquitto-nodelay": partial(_mosquitto, nodelay=True),
    "flashmq": _flashmq,
    NULL: _null,
}


def start(name: str, site: Site, durable: bool = False, transport: str = PLAIN) -> Broker:
    """Start the broker called `name`; with `durable`, it stores its data on disk if it can.

    ``transport`` is one of TRANSPORTS. Devices then connect to ``device_port``. With TLS, the broker's directory has
    the file AUTHORITY, which verifies its certificate for ``localhost``.

    Raises:
        Unavailable: the broker is not installed, or does not start.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=site.directory))
    broker = None
    try:
        broker = _STARTS[name](site, directory, durable, transport)
        broker.launch()
        broker.ready()
    except BaseException:
        if broker is not None:
            broker.end()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return broker


def is_installed(make: str) -> bool:
    """Whether this make of broker can be started here."""
    return make in ("holdfast", NULL) or shutil.which(make, path=_PATHS) is not None


def version(make: str) -> str:
    """The version of a broker, for the heading of the report."""
    if make == "holdfast":
        return f"Python {sys.version.split()[0]}"
    if make == NULL:
        return "a server that does almost nothing"
    option = "-h" if make == "mosquitto" else "--version"
    lines = subprocess.run([_program(make), option], capture_output=True, text=True, check=False).stdout.splitlines()
    return f"{lines[0]}, limits off, not durable" if lines else "unknown version"
