"""Access to the running broker over the control socket. It imports no Twisted, so Spark jobs can use it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from holdfast.admin.address import API_PREFIX, JOBS_PATH, SOCKET_NAME, SocketAddress
from holdfast.commands.interfaces import NO_ARGUMENTS, Access, Arguments, Inaccessible, Refused, content_of

if TYPE_CHECKING:
    from holdfast.config import Config


# A client of the running broker's API, over the control socket. It imports no Twisted, so Spark jobs can use it.


#: seconds that the broker may send nothing
_TIMEOUT = 60.0
#: seconds that a broker with a database may work on a call
_PATIENCE = 50
#: bytes read at once of a long answer
_READ_SIZE = 1 << 16


class ConnectionBroken(Inaccessible):
    """The connection to the broker broke."""


class SocketConnection(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def __init__(self, config: Config) -> None:
        super().__init__("localhost", timeout=_TIMEOUT)
        self._path = config.data_dir / SOCKET_NAME

    def connect(self) -> None:
        """Connect to the socket."""
        address = SocketAddress(self._path)
        try:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(address.text)
        finally:
            address.close()


class BrokerClient:
    """Makes calls to the running broker."""

    reaches_subscribers = True

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connection = SocketConnection(config)
        self._patience = 0  #: seconds that the broker is asked to work on each call; 0: its usual ones

    def is_there(self) -> bool:
        """Tell whether a broker listens at the control socket.

        Raises :class:`Inaccessible` if this user may not use it.
        """
        try:
            self._connection.connect()
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return False
        except OSError as error:
            path = self._config.data_dir / SOCKET_NAME
            raise Inaccessible(f"{path}: {error.strerror}; run this as the broker's user") from error
        return True

    def answers(self) -> bool:
        """Tell whether a broker answers.

        Raises :class:`Inaccessible` if this user may not use the socket, or if the broker uses another database.
        """
        if not self.is_there():
            return False
        try:
            info = self.call("GET", "/info")
        except ConnectionBroken:
            return False  # the broker accepted the connection and then began to stop
        # Some calls take long for a large database. With one that is away, no caller waits longer than it must.
        self._patience = _PATIENCE if info["available"] else 0
        store = info["store"]
        if store != self._config.storage.url:
            self._check_store(store)
        return True

    def closed_listeners(self) -> list[str]:
        """Return the names of the listeners that do not listen. Raises :class:`Inaccessible`."""
        return [each["name"] for each in self.call("GET", "/api/v5/listeners") if not each["running"]]

    def _check_store(self, store: str) -> None:
        """Compare the broker's database with the configured one, without its secrets. Raises Inaccessible."""
        from holdfast.storage.location import shown

        wanted = shown(self._config.storage.url)
        if store != wanted:
            raise Inaccessible(
                f"the broker of {self._config.data_dir} keeps its messages in {store}, not in {wanted}; "
                "give --data-dir another folder for the other database"
            )

    def call(self, method: str, path: str, arguments: Arguments = NO_ARGUMENTS, body: bytes = b"") -> Any:
        """Return the content of the answer. The path is below the retainer's API, or whole if it begins with /api/."""
        with self._explained():
            response = self._request(method, path, arguments, body)
            content = content_of(response.status, response.read())
            if response.status == http.client.ACCEPTED and response.getheader("Location", "").startswith(JOBS_PATH):
                raise Inaccessible(
                    f"the database does not answer; the broker makes this change when it is back: see the job"
                    f" {content['id']} (GET {response.getheader('Location')})"
                )
            return content

    def pieces(
        self, path: str, arguments: Arguments = NO_ARGUMENTS, method: str = "GET", body: bytes = b""
    ) -> Iterator[bytes]:
        """Yield a long answer piece by piece."""
        with self._explained():
            response = self._request(method, path, arguments, body)
            if response.status != http.client.OK:
                content_of(response.status, response.read())
            while piece := response.read1(_READ_SIZE):
                yield piece

    def _request(self, method: str, path: str, arguments: Arguments, body: bytes) -> http.client.HTTPResponse:
        whole = path if path.startswith("/api/") else f"{API_PREFIX}{path}"
        uri = f"{whole}?{urlencode(arguments)}" if arguments else whole
        headers = {"Prefer": f"wait={self._patience}"} if self._patience else {}
        self._connection.request(method, uri, body or None, headers)
        return self._connection.getresponse()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise failures of the connection as :class:`Inaccessible`."""
        try:
            yield
        except TimeoutError as error:
            self._connection.close()
            raise Inaccessible(f"the broker has sent nothing for {_TIMEOUT:g} seconds; see its log") from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ConnectionBroken(
                f"the connection to the broker broke ({error!r}): the answer is not complete"
            ) from error


# Merging a staging area through the API, and reading the progress that it reports.


class MergeFailed(Exception):
    """The merge ended before all rows were merged; the text says why."""


def merge_staged(
    access: Access, *, job: str, merge: str, rejected: int, staged: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Merge a staging area, and yield the ``state``, ``counts`` and ``rejects`` after each part.

    ``staged`` names the area; ``rejected`` messages were rejected before. Raises :class:`MergeFailed` or
    :class:`holdfast.commands.interfaces.Inaccessible`.
    """
    arguments = {"job": job, "merge": merge, **({"rejected": str(rejected)} if rejected else {})}
    rest = b""
    for piece in access.pieces("/merge", arguments, "POST", json.dumps(staged).encode()):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            progress = json.loads(line)
            if progress["state"] == "failed":
                raise MergeFailed(progress["message"])
            yield progress


# Asks the running broker to reload its configuration.


_PATH = "/api/v5/reload"


def reload_broker(config: Config) -> dict[str, Any]:
    """Return what the broker of this data directory has done. With ``problems`` in it, nothing was changed.

    Raises Inaccessible if no broker runs there, or if the reload has failed.
    """
    client = BrokerClient(config)
    if not client.is_there():
        raise Inaccessible(
            f"no broker runs with the data in {config.data_dir}; name its configuration file with --config, or its"
            " data directory with --data-dir"
        )
    try:
        content = client.call("POST", _PATH)
    except ConnectionBroken as broken:
        raise Inaccessible(f"{broken}; see the broker's log for what was changed") from None
    except Refused as refused:
        content = refused.content
        if not isinstance(content, dict) or "problems" not in content:
            raise
    assert isinstance(content, dict)
    return content
