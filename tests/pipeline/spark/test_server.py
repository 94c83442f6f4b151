"""The server is found while it runs, never mistaken for another process, and gives the results of any other Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.spark.server import is_used, running_server, server_folder, start_server, stop_server, use_server
from holdfast_pipeline.spark.session import uses_other_hosts
from tests.pipeline.commands import COMMAND, PATIENCE, ends, environment
from tests.pipeline.spark.rpc import reads_objects
from tests.pipeline.stores import Filled, message


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a cache of its own."""
    return {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}


@pytest.fixture
def server(home: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks and listens like a server, and its file."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = ["/bin/sh", "-c", "echo; read line", "holdfast_pipeline.spark.server_process"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # before, its command line may still be empty
        note(home, pid=process.pid, port=listening.getsockname()[1])
        yield process
        process.kill()
        process.communicate()


def note(home: dict[str, str], **fields: int) -> None:
    """Write the file that tells of a server."""
    assert running_server(home) is None  # makes the folder's parent
    folder = Path(home["XDG_CACHE_HOME"], "holdfast", folder_of(home))
    folder.mkdir()
    (folder / "server.json").write_text(json.dumps({"token": "secret", "java": 0, **fields}))


def folder_of(home: dict[str, str]) -> str:
    """Return the name of the folder for this environment's server, as the module chooses it."""
    found = server_folder(home)
    assert found is not None
    return found.name


def test_a_running_server_is_used(home: dict[str, str], server: subprocess.Popen[bytes]) -> None:
    found = running_server(home)
    assert found is not None
    assert found.pid == server.pid
    use_server(home)
    assert home["SPARK_REMOTE"] == f"sc://localhost:{found.port}"
    assert home["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == "secret"
    assert is_used(home)
    assert not uses_other_hosts("local[*]", home)
    assert "secret" not in repr(home["SPARK_REMOTE"])


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("chosen", ["SPARK_REMOTE", "MASTER", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"])
def test_a_users_choice_of_another_spark_stays(home: dict[str, str], chosen: str) -> None:
    home[chosen] = "sc://elsewhere"
    use_server(home)
    assert home[chosen] == "sc://elsewhere"
    assert not is_used(home)
    assert uses_other_hosts("local[*]", home) == (chosen == "SPARK_REMOTE")


def test_a_server_that_has_ended_is_not_used(home: dict[str, str], server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait(PATIENCE)
    use_server(home)
    assert "SPARK_REMOTE" not in home


def test_another_process_with_its_number_is_neither_used_nor_stopped(home: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        note(home, pid=os.getpid(), port=listening.getsockname()[1])
        assert running_server(home) is None
        assert stop_server(home) is None


def test_a_server_that_does_not_listen_is_not_used(home: dict[str, str], server: subprocess.Popen[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    path = Path(home["XDG_CACHE_HOME"], "holdfast", folder_of(home), "server.json")
    path.write_text(json.dumps({"pid": server.pid, "java": 0, "port": port, "token": "secret"}))
    assert running_server(home) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"port": "x", "pid": 1, "token": ""}', '{"port": 1'])
def test_a_broken_file_tells_of_no_server(home: dict[str, str], content: str) -> None:
    note(home)
    Path(home["XDG_CACHE_HOME"], "holdfast", folder_of(home), "server.json").write_text(content)
    assert running_server(home) is None


def test_a_server_can_be_stopped(home: dict[str, str], server: subprocess.Popen[bytes]) -> None:
    found = stop_server(home)
    assert found is not None
    assert server.wait(PATIENCE) == -signal.SIGTERM
    assert stop_server(home) is None


@pytest.mark.spark
def test_a_server_that_does_not_start_tells_its_log(home: dict[str, str]) -> None:
    with pytest.raises(
        PipelineError, match=r"did not start: it has ended after [0-9]+ s; its log is .*server\.log"
    ) as failed:
        start_server({**os.environ, **home}, memory="10m")
    log = Path(str(failed.value).rpartition(" is ")[2])
    assert "JAVA_GATEWAY_EXITED" in log.read_text()
    assert running_server(home) is None


@pytest.mark.spark
def test_an_interrupted_start_leaves_no_server_behind(home: dict[str, str]) -> None:
    """The command kills it; or, if the signal comes before the command knows of it, it ends without its starter."""
    settings = {**environment(), **home}
    command = subprocess.Popen([COMMAND, "server", "start"], env=settings, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    while not (servers := servers_of(command.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    command.terminate()
    _, said = command.communicate(timeout=PATIENCE)
    assert (command.returncode, said) == (128 + signal.SIGTERM, "ended by SIGTERM\n")
    assert len(servers) == 1
    assert ends(int(servers[0].name))
    assert running_server(home) is None


def servers_of(process: int) -> list[Path]:
    """Return the folders in /proc of the servers that a process has started."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):  # this child has ended since
                if b"server_process" in Path("/proc", child, "cmdline").read_bytes():
                    found.append(Path("/proc", child))
    return found


def test_commands_need_no_packages_of_spark_connect() -> None:
    """Only a server does: its start names the packages that are missing."""
    program = """
import sys
for name in ("grpc", "grpc_status", "pandas"):
    sys.modules[name] = None
from holdfast_pipeline.spark import SparkProcess, running_server
running_server({"HOME": "/nowhere"})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


@pytest.mark.spark
@pytest.mark.nightly
def test_relative_paths_mean_the_folder_of_the_command(tmp_path: Path) -> None:
    """Not that of the server, which reads and writes the files."""
    settings = {name: value for name, value in environment().items() if name != "PYSPARK_SUBMIT_ARGS"}
    settings |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *arguments], env=settings, cwd=tmp_path, capture_output=True, text=True, check=False,
            timeout=PATIENCE,
        )  # fmt: skip

    assert run("server", "start").returncode == 0
    try:
        Path(tmp_path, "own.toml").write_text('[node]\ndata_dir = "data"\n')
        Path(tmp_path, "a.ndjson").write_text('{"topic": "a/b", "payload": "MQ==", "qos": 0}\nno message\n')
        folders = ("--rejects", "rejects", "--staging", "staging")
        done = run("import", "a.ndjson", "--format", "ndjson", "--config", "own.toml", *folders, "--json")
        assert (done.returncode, json.loads(done.stdout)["imported"]) == (ExitStatus.FOUND, 1), done.stderr
        assert Path(tmp_path, "rejects", "rejects.jsonl").exists()
    finally:
        run("server", "stop")


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_commands_with_a_server_give_the_same_results(filled: Filled, tmp_path: Path) -> None:
    """Also from another folder. When the server is killed in the middle, a command fails soon and says why."""
    filled.put(message("a/b", b"1"), message("a/c", b'{"v": 2}'))
    lean = environment()
    settings = {name: value for name, value in lean.items() if name != "PYSPARK_SUBMIT_ARGS"}
    settings |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*arguments: str, cwd: Path = tmp_path, status: int = 0) -> str:
        done = subprocess.run(
            [COMMAND, *arguments], env=settings, cwd=cwd, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    run("server", "status", status=3)
    run("server", "start")
    try:
        told = json.loads(run("server", "status", "--json"))
        assert not any(reads_objects(port, 5.0) for port in ports_of_java(told["pid"]))
        assert "runs already" in run("server", "start")
        (tmp_path / "elsewhere").mkdir()
        for command in ("tree", "shapes", "filters"):
            arguments = ("report", "--only", command, "--storage", filled.url, "--json")
            warm = run(*arguments, cwd=tmp_path / "elsewhere")
            assert timeless(warm) == timeless(run(*arguments, "--no-server"))
        decode = ("decode", "--storage", filled.url, "--format", "number", "--pattern", "a/+")
        run(*decode, "--max-bad", "1", "--out", str(tmp_path / "warm"))
        run(*decode, "--max-bad", "1", "--out", str(tmp_path / "cold"), "--no-server")
        warm, cold = (pq.read_table(tmp_path / each / "data").to_pydict() for each in ("warm", "cold"))
        assert warm == cold
        assert warm["topic"] == ["a/b"]
        began = subprocess.Popen(
            [COMMAND, "report", "--storage", filled.url, "--out", str(tmp_path / "page.html")], env=settings,
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        os.kill(told["pid"], signal.SIGKILL)
        _, explained = began.communicate(timeout=PATIENCE)
        # It may not have begun to use the server.
        assert began.returncode == 0 or "server does not answer" in explained
        run("server", "status", status=3)
    finally:
        run("server", "stop")


def ports_of_java(server: int) -> set[int]:
    """Return the ports at which the Java of a server listens."""
    children = [Path("/proc", each) for each in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    (java,) = [child for child in children if b"SparkSubmit" in child.joinpath("cmdline").read_bytes()]
    links = [os.readlink(each) for each in java.joinpath("fd").iterdir() if each.is_symlink()]
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    found = {
        int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in links
    }
    assert found
    return found


def timeless(line: str) -> str:
    """Return a result without the times that differ between two runs."""
    return re.sub(r'"\w*(at|age|newest|oldest)": \d+', "", line)
