"""Where the log goes by the options of twistd, and in which form."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import Logger, LogPublisher

from holdfast.watch.log_output import log_observer


class _Out(io.StringIO):
    """A standard output that is a terminal, or is not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: terminal  # type: ignore[method-assign]


class _Reactor(MemoryReactorClock):
    """A reactor that acts at once for another thread."""

    def callFromThread(self, function: Callable[[], object]) -> None:
        """Call it."""
        function()


def written(monkeypatch: pytest.MonkeyPatch, formatter: str, *, terminal: bool) -> str:
    """What a line of the log looks like on such a standard output."""
    out = _Out(terminal)
    monkeypatch.setattr(sys, "__stdout__", out)
    observer = log_observer(formatter, "info", {"nodaemon": 1}, MemoryReactorClock())
    assert observer is not None
    Logger("holdfast", observer=LogPublisher(observer)).info("hello")
    return out.getvalue()


@pytest.mark.parametrize(
    ("formatter", "terminal", "is_json"),
    [("auto", True, False), ("auto", False, True), ("text", False, False), ("json", True, True)],
)
def test_a_terminal_gets_text_and_everything_else_json(
    monkeypatch: pytest.MonkeyPatch, formatter: str, terminal: bool, is_json: bool
) -> None:
    """This holds unless the operator chooses."""
    line = written(monkeypatch, formatter, terminal=terminal)
    if is_json:
        assert json.loads(line)["message"] == "hello"
    else:
        assert line.endswith(" hello\n")


@pytest.mark.parametrize(
    "options", [{"nodaemon": 1, "syslog": True}, {"nodaemon": 1, "logger": print}, {"nodaemon": 0, "logfile": "-"}]
)
def test_what_twistd_does_itself_is_left_to_it(options: dict[str, Any]) -> None:
    assert log_observer("auto", "info", options, MemoryReactorClock()) is None


@pytest.fixture
def without_handler() -> Iterator[None]:
    """Restores the handler of SIGUSR1."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("without_handler")
def test_a_log_file_gets_json_and_rotates_at_sigusr1(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    reactor = _Reactor()  # type: ignore[no-untyped-call]
    observer = log_observer("auto", "info", {"nodaemon": 1, "logfile": str(path)}, reactor)
    assert observer is not None
    log = Logger("holdfast", observer=LogPublisher(observer))
    log.info("before")
    signal.raise_signal(signal.SIGUSR1)
    log.info("after")
    assert json.loads(path.read_text())["message"] == "after"
    assert json.loads((tmp_path / "broker.log.1").read_text())["message"] == "before"
    observer._outFile.close()
