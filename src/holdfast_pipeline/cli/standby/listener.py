"""The process that waits for commands, and runs each in a fork of itself.

It has one thread, and has opened no connection: its forks share the imported modules only. It ends with the Spark
server. When the installed package has changed, it declines: its forks would run the old code.
"""

from __future__ import annotations

import atexit
import gc
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NoReturn

import holdfast_pipeline
from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli.process import run_here
from holdfast_pipeline.cli.signals import END_SIGNALS, SIGNAL_STATUS
from holdfast_pipeline.cli.standby.place import listening_in, peer
from holdfast_pipeline.cli.standby.rehearsal import Rehearsal, remove_leftover
from holdfast_pipeline.cli.standby.request import BEGUN, Request, send_number
from holdfast_pipeline.report.templating import compile_templates

#: PySpark imports these modules when a command begins to use the server.
_USED_BY_PYSPARK = ("grpc._channel", "ipykernel", "pandas", "pyspark.sql.connect.session", "pyspark.sql.connect.tvf")
#: Commands that change a database without a broker import this, and with it the whole broker, when they need it.
_STAND_IN = "holdfast.commands.stand_in"
#: Seconds that a client may take to send its request.
_SENDS = 5.0


def listen(folder: Path, server: int, rehearses: bool) -> None:
    """Run commands until the process ``server`` ends. With ``rehearses``, begin with a rehearsal.

    Raises :class:`OSError`.
    """
    _import_all()
    listener = Listener(listening_in(folder), os.pidfd_open(server))
    if rehearses:
        try:
            listener.rehearse(folder)
        except OSError as error:  # users need the standby more
            print("there is no rehearsal:", error, file=sys.stderr, flush=True)
    else:
        remove_leftover(folder)
    listener.run()


def _import_all() -> None:
    own = (each.name for each in walk_packages(holdfast_pipeline.__path__, "holdfast_pipeline."))
    for name in (*own, *_USED_BY_PYSPARK, _STAND_IN):
        with suppress(ModuleNotFoundError):  # of an optional package
            import_module(name)
    compile_templates()
    gc.collect()
    gc.freeze()  # the forks share these objects: a collection must not touch them


class Listener:
    """Accepts connections, forks for each, and tells each client the exit status of its command."""

    def __init__(self, listening: socket.socket, server: int) -> None:
        self._listening = listening
        self._server = server
        self._running: dict[int, tuple[int, socket.socket]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(server, selectors.EVENT_READ)
        self._files = _installed_files()
        self._ends = False
        self._rehearsal: Rehearsal | None = None

    def rehearse(self, folder: Path) -> None:
        """Begin a rehearsal in the server's folder. It goes on while no command runs. Raises :class:`OSError`."""
        self._rehearsal = Rehearsal.begin(folder, self._forget_all, _status_of_command)
        self._selector.register(self._rehearsal.ended, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the server ends, or the installed package changes, and the last command has ended."""
        while self._running or not self._ends:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj == self._server:
                    self._ends = True
                elif self._rehearsal is not None and key.fileobj == self._rehearsal.ended:
                    self._end_rehearsal()
                else:
                    self._report(key.fd)
            if self._ends:
                self._stop_listening()
                self._end_rehearsal()

    def _end_rehearsal(self) -> None:
        if self._rehearsal is not None:
            self._selector.unregister(self._rehearsal.ended)
            self._rehearsal.end()
            self._rehearsal = None

    def _stop_listening(self) -> None:
        if self._listening.fileno() >= 0:
            self._selector.unregister(self._listening)
            self._selector.unregister(self._server)
            self._listening.close()

    def _accept(self) -> None:
        connection, _ = self._listening.accept()
        if peer(connection)[1] != os.geteuid():
            connection.close()
            return
        if self._files != _installed_files(self._files):
            connection.close()
            self._ends = True
            return
        try:
            process = os.fork()
        except OSError:  # no memory, or too many processes: the client runs the command itself
            connection.close()
            return
        if not process:
            self._run(connection)
        ended = os.pidfd_open(process)
        self._running[ended] = process, connection
        self._selector.register(ended, selectors.EVENT_READ)
        if self._rehearsal is not None:
            self._rehearsal.hold()

    def _report(self, ended: int) -> None:
        self._selector.unregister(ended)
        os.close(ended)
        process, connection = self._running.pop(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with connection, suppress(OSError):  # nobody waits any more
            send_number(connection, status if status >= 0 else SIGNAL_STATUS - status)
        if self._rehearsal is not None and not self._running:
            self._rehearsal.go_on()

    def _run(self, connection: socket.socket) -> NoReturn:
        """Run one command, in the fork."""
        try:
            self._forget_all()
            connection.settimeout(_SENDS)
            request, files = Request.receive(connection)
            request.take_place(files)
            send_number(connection, BEGUN)
            connection.settimeout(None)
        except (OSError, ValueError):  # nobody waits any more; nothing has been done
            os._exit(ExitStatus.FAILED)
        threading.Thread(target=_raise_signals, args=(connection,), daemon=True).start()
        os._exit(_status_of_command())

    def _forget_all(self) -> None:
        self._selector.close()
        self._listening.close()
        os.close(self._server)
        if self._rehearsal is not None:
            os.close(self._rehearsal.ended)
        for ended, (_, connection) in self._running.items():
            os.close(ended)
            connection.close()


def _raise_signals(connection: socket.socket) -> None:
    """Raise the signals that the client passes on. When it is gone, the command ends, too."""
    while True:
        try:
            received = connection.recv(1)
        except OSError:
            received = b""
        number = received[0] if received else signal.SIGTERM
        if number in END_SIGNALS:
            os.kill(os.getpid(), number)
        if not received:
            return


def _status_of_command() -> int:
    """Run the command to its end, as Python runs a program."""
    try:
        run_here()
        status: object = None
    except SystemExit as error:
        status = error.code
    except BaseException:  # noqa: BLE001 - as at the end of any program
        sys.excepthook(*sys.exc_info())
        status = ExitStatus.FAILED
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = ExitStatus.FAILED
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or ExitStatus.FAILED
    return (status or 0) & 0xFF


def _installed_files(paths: Iterable[str] | None = None) -> dict[str, int]:
    """Return the times at which files of this package changed: those of paths, by default of all imported modules."""
    if paths is None:
        modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "holdfast"]
        paths = [module.__file__ for module in modules if module.__file__]
    found = {}
    for path in paths:
        try:
            found[path] = os.stat(path).st_mtime_ns
        except OSError:
            found[path] = 0
    return found
