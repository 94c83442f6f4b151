"""The broker of a day: a process of its own, with a configuration that is kept beside the data."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Seconds until the broker is ready, or has ended.
_PATIENCE = 60.0

CONFIGURATION = """\
# The broker of the building. Start it again with: twistd -n --pidfile= holdfast --config {file}

[node]
data_dir = "data"

[listeners.default]
endpoint = "tcp:1883:interface=127.0.0.1"

[retainer]
msg_clear_interval = "1s"    # so that the short bookings expire while the day is played

[retainer.history]
enable = true
keep = "infinity"
"""


class NotStarted(Exception):
    """The broker did not start; the text is what it said."""


def configure(folder: Path) -> Path:
    """Write the broker's configuration into a folder, and return the file."""
    file = folder / "holdfast.toml"
    file.write_text(CONFIGURATION.format(file=file), encoding="utf-8")
    return file


@contextmanager
def broker(file: Path) -> Iterator[int]:
    """Run the broker of a configuration on a free port, which is given; it ends with the block, as by SIGTERM.

    What it logs is in ``broker.log`` beside the configuration. Raises :class:`NotStarted`.
    """
    twistd = Path(sys.executable).parent / "twistd"
    command = [str(twistd), "-n", "--pidfile=", "holdfast", "--config", str(file)]
    log = file.with_name("broker.log")
    with log.open("wb") as errors:
        # In a session of its own: Ctrl-C is for us, and we end it.
        process = subprocess.Popen(
            [*command, "--listen", "tcp:0:interface=127.0.0.1"],
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
