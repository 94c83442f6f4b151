"""The unit of systemd: it is right, and the broker runs within its limits and tells systemd what it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import PATIENCE, notified

UNIT = Path(__file__).parents[2] / "etc" / "systemd" / "holdfast.service"

BIN = Path(sys.executable).parent

#: Sets what the unit sets, as far as the kernel offers it without systemd, and becomes the command: no new privileges,
#: and no memory that is both writable and executable. Kernels before 6.3 refuse the latter; the test is weaker there.
CONFINED = """
import ctypes, os, sys
os.umask(0o077)
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
libc.prctl(65, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.e2e
def test_the_unit_is_right_and_tight(tmp_path: Path) -> None:
    unit = tmp_path / "holdfast.service"
    unit.write_text(UNIT.read_text().replace("/opt/holdfast/bin/holdfast", f"{BIN}/holdfast"))
    checked = run("systemd-analyze", "verify", unit)
    assert (checked.returncode, checked.stderr) == (0, "")
    # The threshold is ten times systemd's own measure: 0 is safe, 10 is exposed.
    rated = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", unit)
    assert rated.returncode == 0, rated.stdout[-200:]


def test_the_unit_starts_a_broker_that_failed_again_without_end() -> None:
    """After a power cut the cause may last for longer than any number of quick starts."""
    lines = UNIT.read_text().splitlines()
    assert {"Restart=on-failure", "RestartSec=5", "StartLimitIntervalSec=0"} <= set(lines)


@pytest.mark.e2e
def test_the_broker_tells_systemd_that_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    with notified() as (address, tell):

        def told() -> str:
            return tell().split("\n")[0]

        broker = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CONFINED,
                BIN / "holdfast",
                "run",
                "--data-dir",
                tmp_path / "data",
                "--listen",
                "tcp:0:interface=127.0.0.1",
            ],
            env={**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"},
            stdout=subprocess.DEVNULL,
        )
        try:
            assert told() == "READY=1"
            assert [told(), told()] == ["WATCHDOG=1", "WATCHDOG=1"]
            pinged = run(BIN / "holdfast", "ping", "--data-dir", tmp_path / "data")
            assert (pinged.returncode, pinged.stdout) == (0, "the broker answers\n")
            files = {os.readlink(file) for file in Path(f"/proc/{broker.pid}/fd").iterdir()}
            assert "anon_inode:[timerfd]" in files, "the broker follows the machine's clock"
            broker.send_signal(signal.SIGTERM)
            states = [told()]
            while states[-1] != "STOPPING=1":
                states.append(told())
            assert broker.wait(PATIENCE) == 0
        finally:
            broker.kill()
            broker.wait()
    assert not [path for path in (tmp_path / "data").iterdir() if path.stat().st_mode & 0o077]
    gone = run(BIN / "holdfast", "ping", "--data-dir", tmp_path / "data")
    assert gone.returncode == 1
    assert "no broker answers" in gone.stderr
