"""mosquitto as a broker with a bridge, configured as the page for operators says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import PATIENCE, lasting_port

PROGRAM = shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
needs_mosquitto_broker = pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "operator" / "bridges.md"


class MosquittoBridge:
    """One mosquitto on a port of its own, with a bridge to the broker on ``remote``."""

    def __init__(self, directory: Path, remote: int, version: str) -> None:
        self.port = lasting_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._file = directory / "mosquitto.conf"
        found = re.search(r"^```\n(persistence .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        assert found
        text = found[1]
        for before, after in (
            ("/var/lib/mosquitto/", f"{directory}/"),
            ("holdfast.example.org:1883", f"127.0.0.1:{remote}"),
            ("mqttv311", version),
        ):
            assert before in text
            text = text.replace(before, after)
        own = ["user root", f"listener {self.port} 127.0.0.1", "allow_anonymous true"]
        own += [f"log_dest file {directory}/mosquitto.log", ""]
        # restart_timeout: otherwise mosquitto waits for up to half a minute
        self._file.write_text(f"{chr(10).join(own)}{text}restart_timeout 1\n")

    def start(self) -> None:
        """Start the process without waiting for it."""
        assert PROGRAM is not None
        self._process = subprocess.Popen([PROGRAM, "-c", str(self._file)], stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        """Stop the process as an init system does: mosquitto stores its database."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE)
            self._process = None
