"""The broker of the day: a process of its own. Its configuration stays beside the data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.building.clock import VARIABLE

#: Seconds after which a broker that does not end is killed.
_PATIENCE = 60.0

CONFIGURATION = """\
# The broker of the building. Start it again with: twistd -n --pidfile= holdfast --config {file}

[node]
data_dir = "data"

[listeners.default]
endpoint = "tcp:1883:interface=127.0.0.1"

[retainer.history]
enable = true
keep = "infinity"
"""


class NotStarted(Exception):
    """The broker did not start; the text has its output."""


def configure(folder: Path) -> Path:
    """Write the broker's configuration into a folder, and return the file."""
    file = folder / "holdfast.toml"
    file.write_text(CONFIGURATION.format(file=file), encoding="utf-8")
    return file


@contextmanager
def broker(file: Path, clock: Path) -> Iterator[int]:
    """Run a broker with a configuration and with the clock in a file, on a free port, and give the port.

    It gets SIGTERM at the end of the block.

    Its log is ``broker.log`` beside the configuration. Raises :class:`NotStarted`.
    """
    command = [sys.executable, "-m", "examples.building.clocked_broker", "-n", "--pidfile=", "holdfast"]
    log = file.with_name("broker.log")
    with log.open("wb") as errors:
        # In a session of its own, so that Ctrl-C reaches only this process, which then ends the broker in order.
        process = subprocess.Popen(
            [*command, "--config", str(file), "--listen", "tcp:0:interface=127.0.0.1"],
            env={**os.environ, VARIABLE: str(clock.absolute())},
            stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            yield _port(process, log)
        finally:
            _end(process)


def _port(process: subprocess.Popen[str], log: Path) -> int:
    assert process.stdout is not None
    port = 0
    for line in process.stdout:
        if line.startswith("listening "):
            port = int(line.rsplit(":", 1)[1])
        if line.strip() == "ready":
            return port
    raise NotStarted(f"the broker did not start: {log.read_text(errors='replace').strip() or 'it said nothing'}")


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
