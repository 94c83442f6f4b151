"""``holdfast run``: starts the same broker as ``twistd holdfast``, in any installation."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paho import PahoClient
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parent.parent.parent
TWISTD_CODE = "from twisted.scripts.twistd import run; run()"


@pytest.fixture
def run_in(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Prepare brokers that ``holdfast run`` starts."""
    brokers: list[BrokerProcess] = []

    def prepare(*options: str, program: tuple[str, ...] = HOLDFAST_RUN, listen: bool = True) -> BrokerProcess:
        broker = BrokerProcess(tmp_path, *options, program=program, listen=listen)
        brokers.append(broker)
        return broker

    yield prepare
    for broker in brokers:
        broker.end()


@pytest.fixture(scope="module")
def plain_editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment after a plain ``pip install -e .``, with the dependencies of this one."""
    folder = tmp_path_factory.mktemp("plain")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "src", "migrations", "twisted"):
        subprocess.run(["cp", "-rL", str(ROOT / name), str(copy)], check=True)
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    outer = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in outer))
    python = folder / "venv" / "bin" / "python"
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "-e",
        str(copy),
    ]
    subprocess.run(install, check=True, cwd=folder)
    return python


def test_it_starts_the_broker_and_ends_with_status_0(run_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """The options, the printed lines and the signals are those of twistd."""
    file = tmp_path / "holdfast.toml"
    file.write_text('[listeners.plain]\nendpoint = "tcp:0:interface=127.0.0.1"\n')
    broker = run_in("--config", str(file), listen=False).start()
    assert broker.wait_for(r"^listening plain tcp:127\.0\.0\.1:\d+$")
    assert broker.wait_for("Holdfast 0")
    client = PahoClient(broker.port, 5, "c")
    client.publish("t", "kept", qos=1, retain=True)
    client.close()
    assert broker.stop() == (0, "")
    assert run_in("--config", str(file), listen=False).start().stop(signal.SIGINT) == (0, "")


def test_a_port_in_use_ends_it_with_status_1(run_in: Callable[..., BrokerProcess]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = run_in("--listen", f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1", listen=False)
        broker.launch()
        status, errors = broker.wait()
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "in use" in errors


def test_a_wrong_option_ends_it_with_status_2(run_in: Callable[..., BrokerProcess]) -> None:
    broker = run_in("--no-such-option")
    broker.launch()
    status, errors = broker.wait()
    assert (status, errors) == (2, "holdfast run: option --no-such-option not recognized\n")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_its_help_lists_the_options_of_the_broker(option: str) -> None:
    found = subprocess.run([*HOLDFAST_RUN, option], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("Usage: holdfast run [options]\n")
    for name in ("--config=", "--listen=", "--data-dir=", "--storage=", "--allow-anonymous"):
        assert name in found.stdout


def test_it_works_where_a_plain_editable_install_hides_the_plugin(
    plain_editable: Path, run_in: Callable[..., BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twistd does not find the plugin there; ``holdfast run`` needs none."""
    monkeypatch.delenv("PYTHONPATH", raising=False)  # the compiled package may be there, with the plugin
    command = [str(plain_editable), "-c", TWISTD_CODE, "-n", "holdfast"]
    found = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE)
    assert "Unknown command: holdfast" in found.stdout + found.stderr
    broker = run_in(program=(str(plain_editable), "-m", "holdfast.commands", "run")).start()
    assert broker.stop() == (0, "")
