"""The broker on a real terminal: what its operator reads, from the start to Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.processes import PATIENCE, TWISTD

pytestmark = pytest.mark.e2e


#: takes the terminal at stdin as its own, so that Ctrl-C there is meant for it, and becomes the command
OWNING = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A terminal that another process writes to."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.text = ""

    def read_until(self, wanted: str) -> str:
        """Return what was shown so far, once it has these words."""
        deadline = time.monotonic() + PATIENCE
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self._ours], [], [], 0.2)[0]:
                self.text += os.read(self._ours, 65536).decode().replace("\r\n", "\n")
        return self.text

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C."""
        os.write(self._ours, b"\x03")

    def close(self) -> None:
        """Close both ends."""
        os.close(self._ours)
        os.close(self.theirs)


def test_a_terminal_shows_few_lines_a_link_that_works_and_how_to_stop(tmp_path: Path) -> None:
    (tmp_path / "h.toml").write_text('[admin]\nendpoint = "tcp:0:interface=127.0.0.1"\n')
    terminal = Terminal()
    command = (*TWISTD, "--config=h.toml", "--data-dir=data", "--listen=tcp:0:interface=127.0.0.1")
    broker = subprocess.Popen(
        (sys.executable, "-c", OWNING, *command), cwd=tmp_path, start_new_session=True,
        stdin=terminal.theirs, stdout=terminal.theirs, stderr=terminal.theirs,
    )  # fmt: skip
    try:
        lines = terminal.read_until("Ctrl-C stops the broker").splitlines()
        assert [line.split()[0] for line in lines[:4]] == ["listening", "admin", "dashboard", "ready"], lines
        assert len(lines) <= 6, "a terminal shows what its reader needs, and nothing else"
        link = urlsplit(lines[2].split()[1])
        connection = http.client.HTTPConnection(str(link.hostname), link.port or 0, timeout=PATIENCE)
        connection.request("POST", "/api/v5/login", json.dumps({"token": link.fragment.partition("=")[2]}))
        assert connection.getresponse().status == http.client.OK
        connection.close()
        terminal.press_ctrl_c()
        terminal.read_until("everything accepted is stored")
        assert broker.wait(PATIENCE) == 0
    finally:
        broker.kill()
        broker.wait()
        terminal.close()
