"""Settings of the whole process: interpreter, clock, signals, and the lines that the operator reads.

Only ``twistd holdfast`` and ``holdfast run`` apply these. Tests, commands and jobs share their process with other code.
"""

from __future__ import annotations

import atexit
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from twisted.internet.selectreactor import SelectReactor
from twisted.logger import Logger

from holdfast.scheduling.deadlines import BrokerClock
from holdfast.watch.log_output import reopen_log_files

#: How long one thread may keep the interpreter from another: short, so that the writer never delays live messages.
SWITCH_INTERVAL = 0.0005

_log = Logger()

#: More open files than a broker in one process can serve. The limit may be higher, but then some libraries make tables
#: as long as the limit.
_MOST_OPEN_FILES = 1 << 20

#: files for which the kernel's table has room from the start: half a megabyte
_FILES_AT_ONCE = 1 << 16

#: the files that ``select`` can watch
_SELECTABLE = 1024

#: Collect little at a time, since nobody is served meanwhile: a collection of the youngest 2,000 objects takes half a
#: millisecond, one of the next generation, 6,000 objects at most, two. Larger collections are rarer in proportion, and
#: cost as much in all. With these, 20,000 retained messages of a publisher, 1,000 of them under way, cause four.
#: Collect everything rarely: messages, tickets and connections make no cycles, and the default thresholds cost a fifth
#: of a busy broker's time. To collect everything takes half a microsecond for each object: with 10,000 connected
#: clients 0.3 s. That happens after a million connects, or after many more messages.
COLLECTION_THRESHOLDS = (2_000, 1, 12_000)


def tune_interpreter(reactor: Any) -> None:
    """Set the switch interval and the thresholds of the garbage collector.

    Once the reactor runs, no collection looks at the objects of the start any more: modules, classes and the parts of
    the broker stay as long as the process, and to look at all of them takes 45 ms.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    # In the first turn: all parts have started then, and no connection is accepted yet.
    reactor.callWhenRunning(reactor.callLater, 0, gc.freeze)


def raise_open_files(reactor: Any) -> int:
    """Raise the limit of open files to the highest that the system allows; return the new limit, at most 1,048,576.

    A reactor that uses ``select`` cannot watch files with numbers above 1023: with one, the limit is at most 1024.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (_MOST_OPEN_FILES if limit == resource.RLIM_INFINITY else limit for limit in limits)
    limit = min(hard, _SELECTABLE if isinstance(reactor, SelectReactor) else _MOST_OPEN_FILES)
    if soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
        except (OSError, ValueError) as error:  # some systems allow less than they say
            _log.warn("the limit of open files cannot be raised to {limit}: {error}", limit=limit, error=error)
            limit = soft
    _log.debug("the process may have {limit} files open", limit=limit)
    return limit


def make_room_for_files(limit: int) -> None:
    """Let the kernel make its table of open files for ``limit`` files, at most 65,536. Call this before threads begin.

    Linux doubles the table when it is full. In a process with threads it then waits until no processor can still use
    the old one: 100 to 500 ms on a busy machine, in which the reactor waits in ``accept``. The table never shrinks.
    """
    highest = min(limit, _FILES_AT_ONCE) - 1
    reader, writer = os.pipe()
    try:
        if highest > writer and not _is_open(highest):
            os.close(os.dup2(reader, highest))
    finally:
        os.close(reader)
        os.close(writer)


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def give_steady_clock(reactor: Any) -> BrokerClock:
    """Let the reactor's timers use the steady seconds of the broker's clock, and return that clock."""
    clock = BrokerClock()
    reactor.seconds = clock.seconds  # else timers would jump when the machine's clock is set
    return clock


def end_start_on_sigterm() -> None:
    """End with status 0 on SIGTERM while the broker starts and perhaps waits for its database: nothing is accepted yet.

    Once the reactor runs, :func:`end_on_signals` takes over.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))


def end_on_signals(reactor: Any) -> None:
    """End with status 0 on SIGTERM and SIGINT. Call this while the reactor runs.

    Twistd installs its own handlers when the reactor starts. They end the process by the signal.
    """

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
        reactor.callFromThread(_stop, reactor, signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _stop(reactor: Any, name: str) -> None:
    _log.info("{signal}: the broker stops, and stores first what it has accepted", signal=name)
    reactor.stop()


def end_with_failure(reactor: Any, status: int = 1) -> None:
    """Stop the reactor, and end the process with a status. Twistd itself knows only the status 0 for this."""
    atexit.register(_exit, status)
    reactor.stop()


def _exit(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(status)


def explain_keys(reactor: Any) -> None:
    """On a terminal, say how the broker is stopped, after the lines about its listeners. Call it while they start."""
    if on_terminal():
        reactor.callLater(0, announce, "Ctrl-C stops the broker; it stores first what it has accepted. Twice: at once.")


def go_on_after_hangup(reactor: Any, reload: Callable[[str], object]) -> None:
    """On SIGHUP, reopen the log files and reload the configuration. Call this before the broker starts.

    This holds under ``nohup`` too, which starts the process with SIGHUP ignored: the signal still ends nothing.
    """

    def hang_up(number: int, _frame: object) -> None:
        reactor.callFromThread(_hung_up, signal.Signals(number).name, reload if number == signal.SIGHUP else None)

    def rotate() -> None:
        # With --logfile, twistd has a handler by now, which rotates its file. Without, the signal would end the broker.
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, hang_up)

    signal.signal(signal.SIGHUP, hang_up)
    reactor.callWhenRunning(rotate)


def _hung_up(name: str, reload: Callable[[str], object] | None) -> None:
    """Reopen the log files, and log which were reopened and which could not be. Then reload, if that is asked for."""
    reopened = reopen_log_files()
    for failure in reopened.failures:
        _log.error("{signal}: a log file cannot be opened again, and stays as it is: {failure}",
                   signal=name, failure=failure)  # fmt: skip
    _log.info("{signal}: log files reopened: {files}", signal=name, files=", ".join(reopened.paths) or "none")
    if reload is not None:
        reload(name)


def on_terminal() -> bool:
    """Tell whether the real stdout is a terminal. ``sys.stdout`` leads into Twisted's log while the broker runs."""
    out = sys.__stdout__
    return out is not None and out.isatty()


def announce(line: str) -> None:
    """Print a line on the real stdout. Twistd redirects ``sys.stdout`` to its log."""
    out = sys.__stdout__
    if out is not None:
        print(line, file=out, flush=True)


def complain(message: str) -> None:
    """Print one message for the operator on the real stderr. Twistd redirects ``sys.stderr`` to its log."""
    print(f"holdfast: {message}", file=sys.__stderr__, flush=True)
