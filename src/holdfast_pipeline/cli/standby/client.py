"""Has a standby run the command of this process."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli.signals import END_SIGNALS
from holdfast_pipeline.cli.standby.place import connected
from holdfast_pipeline.server_files import chooses_another_spark

#: Seconds that a standby may take to begin.
_BEGINS = 5.0
#: Arguments with which a command does not need it.
_WITHOUT = frozenset({"--no-server", "-h", "--help"})


def run_by_standby(arguments: Sequence[str]) -> int | None:
    """Return the exit status of the command. None: there is no standby, or it declines; nothing has been done."""
    if not arguments or arguments[0] == "server" or arguments[0].startswith("-") or _WITHOUT.intersection(arguments):
        return None
    connection = None if chooses_another_spark(os.environ) else connected(os.environ, _BEGINS)
    if connection is None:
        return None
    from holdfast_pipeline.cli.standby.request import BEGUN, Request, receive_number  # costs more than the above

    with connection, _passing_on(connection):
        try:
            with _holding_back():
                Request.of_this_process(arguments).send(connection)
            begins = receive_number(connection) == BEGUN
        except OSError:
            # It takes too long. Without this connection it will not begin.
            begins = False
        if not begins:
            return None
        connection.settimeout(None)
        try:
            status = receive_number(connection)
        except OSError:
            status = None
    if status is None:
        print("the process that ran this command has ended; run it again", file=sys.stderr)
        return ExitStatus.FAILED
    return status


@contextmanager
def _holding_back() -> Iterator[None]:
    """Hold signals back, which would be passed on in the middle of a request."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _passing_on(connection: socket.socket) -> Iterator[None]:
    """Pass signals on to the process that runs the command, which says when it ends."""

    def receive(number: int, _frame: FrameType | None) -> None:
        with suppress(OSError):  # it has ended, or does not answer
            connection.send(bytes([number]))

    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, receive)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
