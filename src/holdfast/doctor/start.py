"""What would end the start of a broker, or would let it wait: its database and its ports.

Beside a running broker only the version of SQLite is looked at: the broker has its ports, and judges its database.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing
from errno import EADDRINUSE, EADDRNOTAVAIL
from pathlib import Path

from holdfast.config import Config
from holdfast.config.sections.endpoints import ServerEndpoint
from holdfast.doctor.finding import Finding, advice, problem
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.schema import newest_version, own_version
from holdfast.storage.sqlite.library import is_mended, verdict
from holdfast.storage.url import shown

#: seconds to wait for a locked file or a server
_PATIENCE = 5.0
_STOPS = "the broker does not start"


def sqlite_version(config: Config) -> Iterator[Finding]:
    """Yield a finding if this process's SQLite may have the WAL-reset bug."""
    if config.storage.url.startswith("sqlite:") and not is_mended():
        yield advice("SQLite", verdict(), "nothing is at risk; with a newer SQLite some commits are faster")


def database(config: Config) -> Iterator[Finding]:
    """Yield a finding if no broker can start with the database. One that does not exist yet is fine.

    These are the checks of a start, but they create and change nothing.
    """
    url = config.storage.url
    if url.startswith("sqlite:") and not Path(url.removeprefix("sqlite:///")).exists():
        return
    found = database_at(url, Durability.FULL, 0, _PATIENCE)
    try:
        found.inspect()
        with found.explaining_errors(), found.reading_engine().begin() as connection:
            version = own_version(connection.connection, found)
        if version == newest_version():
            found.check_readable()
    except StoreUnusable as error:
        yield problem(shown(url), str(error).removeprefix(f"{found.location}: "), "see docs/operator/faults.md")
        return
    if version not in (None, newest_version()):
        yield problem(
            shown(url),
            f"it has the older schema {version}, so this version of the broker does not start",
            f"stop the broker, take a backup and run: {config.upgrade_command}",
        )


def ports(config: Config) -> Iterator[Finding]:
    """Yield a finding for each endpoint that a broker could not listen on."""
    for name, listener in config.listeners.items():
        yield from _endpoint(f"listeners.{name}", listener.endpoint, listener.server_endpoint)
    admin = config.admin.server_endpoint
    if admin is not None:
        for finding in _endpoint("admin", config.admin.endpoint, admin):
            yield advice(finding.subject, f"{finding.message.partition(';')[0]}; the broker runs without the API",
                         finding.remedy) if config.admin.is_default_endpoint else finding  # fmt: skip


def late_listeners(config: Config, names: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each of these listeners, which a running broker has not opened: the reason, if it lasts."""
    for name in names:
        listener = config.listeners.get(name)
        found = (
            []
            if listener is None
            else list(_endpoint(f"listeners.{name}", listener.endpoint, listener.server_endpoint))
        )
        yield from found or [problem(f"listeners.{name}", "it does not listen yet", "look at the broker's log")]


def _endpoint(key: str, text: str, endpoint: ServerEndpoint) -> Iterator[Finding]:
    try:
        if endpoint.type == "unix":
            _try_path(Path(endpoint.parameters["address"]))
        elif endpoint.type == "tcp" and not endpoint.takes_free_port:
            _try_port(endpoint.parameters.get("interface", ""), int(endpoint.parameters["port"]))
    except OSError as error:
        late = isinstance(error, socket.gaierror) or error.errno == EADDRNOTAVAIL
        reason = "another program uses it" if error.errno == EADDRINUSE else str(error.strerror)
        effect = "the listener waits for its address" if late else _STOPS
        remedy = "configure the address on this machine" if late else "stop the other program, or name another endpoint"
        yield problem(f"{key}.endpoint", f"{text}: {reason}; {effect}", f"{remedy}; then run this again")


def _try_port(host: str, port: int) -> None:
    """Take a port as a listener does, and give it back. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE  # noqa: S104 - what a listener takes
    )[0]  # fmt: skip
    with closing(socket.socket(family, kind, protocol)) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(address)


def _try_path(path: Path) -> None:
    """Tell whether a socket can be made in the file system. One that nobody serves is replaced. Raises OSError."""
    with closing(socket.socket(socket.AF_UNIX)) as trial:
        try:
            trial.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise FileNotFoundError(0, f"no folder that can be written: {path.parent}") from None
        else:
            raise OSError(EADDRINUSE, "in use")
