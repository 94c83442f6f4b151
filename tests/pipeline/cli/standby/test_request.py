"""A process that takes the place of another one has all that a program inherits."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_pipeline.cli.standby.request import Request

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=())).filter(lambda text: "=" not in text)


@given(arguments=st.lists(TEXT), environment=st.dictionaries(TEXT, TEXT))
def test_a_request_arrives_as_it_was_sent(arguments: list[str], environment: dict[str, str]) -> None:
    """Also names of files that are no UTF-8."""
    sent = Request(arguments, environment, 0o027, 10, [signal.SIGHUP], [["utf-8", "strict"], None, ["ascii", "x"]])  # type: ignore[list-item]
    one, other = socket.socketpair()
    with one, other:
        sent.send(one)
        received, files = Request.receive(other)
    for file in files:
        os.close(file)
    assert received == sent


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\0\0\0\2{}", b"\xff\xff\xff\xff"])
def test_another_message_is_no_request(content: bytes) -> None:
    one, other = socket.socketpair()
    with other:
        with one:
            one.sendall(content)
        with pytest.raises(ValueError):
            Request.receive(other)


PROGRAM = """
import json, os, signal, socket, sys, time
from holdfast_pipeline.cli.standby.request import Request

one, other = socket.socketpair()
if os.fork():
    os.wait()
    request, files = Request.receive(other)
    os.chdir("/"); os.umask(0); os.environ["OLD"] = "1"
    request.take_place(files)
    umask = os.umask(0)
    ignored = [int(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_IGN]
    print(json.dumps([sys.argv[1:], sys.stdin.read(), os.getcwd(), umask, os.environ["NEW"], "OLD" in os.environ,
                      os.getpriority(os.PRIO_PROCESS, 0), ignored, sys.stdout.encoding, time.tzname[0]]))
else:
    os.chdir(sys.argv[1]); os.umask(0o027); os.nice(3); signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.environ["NEW"] = "2"; os.environ["TZ"] = "XYZ-3"; sys.stdout.reconfigure(encoding="ascii")
    reading, writing = os.pipe()
    os.write(writing, b"input"); os.close(writing); os.dup2(reading, 0)
    Request.of_this_process(["tree", "--json"]).send(one)
    os._exit(0)
"""


def test_a_process_takes_the_place_of_another_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    priority = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)
    assert json.loads(done.stdout) == [
        ["tree", "--json"], "input", str(tmp_path), 0o027, "2", False, priority, [signal.SIGHUP], "ascii", "XYZ",
    ]  # fmt: skip


def test_a_process_with_libraries_of_its_own_is_not_replaced() -> None:
    """Python has read PYTHONPATH at its start."""
    request = Request([], {**os.environ, "PYTHONPATH": "/elsewhere"}, 0o022, 0, [], [None, None, None])
    with pytest.raises(ValueError, match="new process"):
        request.take_place([])
