"""The Spark process of one command: its start and end, its output, its errors.

How it works. PySpark starts a Java process on the first use of ``SparkContext``; that process starts Python workers.
All of them inherit standard output and standard error, which are a pipe to this process (``console``).
Spark's own settings choose the master, so it is known only after the start. If the master is local, the session gets
more settings that keep other hosts out, and other users of this host.

A signal raises an exception at any point. If it interrupts a call to Java, the answer to that call is still on its
connection, so another thread, which has a connection of its own, stops the session. If it interrupts the start, only
the frame of PySpark's function has the handle of the Java process. That process would run forever, so the handle is
taken from the traceback. ``launch_gateway`` would accept pipes for the output, but would not return the handle earlier,
and Spark Connect calls it itself.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Thread

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast_pipeline.progress import follow_tasks, phase
from holdfast_pipeline.spark.java import choose_worker_python, java_options, java_problem, let_workers_find
from holdfast_pipeline.spark.server import give_up_soon, is_used, use_server
from holdfast_pipeline.spark.session import has_remote_tasks, is_local, prepare, tasks_of, uses_other_hosts

# The output of Spark's processes: kept away from the console.
#
# Warnings, logs and stack traces are for people who examine Spark itself. The last lines are kept, because they may
# explain a failed start. A log4j2.properties of the user still configures Spark's log files.

_KEPT_LINES = 200
_READ_SIZE = 1 << 16


class SparkOutput:
    """The output of the processes that start inside :meth:`captured`."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)

    @property
    def lines(self) -> list[str]:
        """The last lines, the oldest first."""
        return list(self._kept)

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Redirect standard output and standard error to a pipe. Processes that start now inherit it.

        This process must not write anything meanwhile. A thread reads the pipe until the last process ends.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        reading_end, writing_end = os.pipe()
        originals = [os.dup(1), os.dup(2)]
        for number in (1, 2):
            os.dup2(writing_end, number)
        os.close(writing_end)
        Thread(target=self._read, args=(reading_end,), name="spark output", daemon=True).start()
        try:
            yield
        finally:
            for number, original in zip((1, 2), originals, strict=True):
                os.dup2(original, number)
                os.close(original)

    def _read(self, reading_end: int) -> None:
        rest = b""
        with open(reading_end, "rb", buffering=0) as pipe:
            while piece := pipe.read(_READ_SIZE):
                *lines, rest = (rest + piece)[-_READ_SIZE:].split(b"\n")
                self._kept.extend(line.decode(errors="replace") for line in lines if not line.startswith(b"\r"))


# An error of Spark in one line: this package's own message if Spark's text contains one.
#
# Spark passes an error of a Python worker on as text, in the middle of Java's and Python's stack traces. So this is
# text search; only errors that PySpark raises itself have a condition.

_DISK_FULL = re.compile(r"(No space left on device)")
_FREE_SPACE = "{0}: free some space, or name another folder (spark.local.dir, --out)"
#: Patterns and their messages. The first pattern that matches counts, and of its matches the last one.
_MESSAGES = (
    (re.compile(r"PipelineError: (.*)"), "{0}"),
    (
        re.compile(r"No module named '?(holdfast|pyarrow|psycopg|attrs?|sqlalchemy|twisted)\b"),
        "the executors run a Python without {0}: install holdfast[pipeline] on their hosts, or send it to them "
        "(PYSPARK_PYTHON, spark.archives: see the documentation, Clusters)",
    ),
    (
        re.compile(r"Cannot run program \"([^\"]*)\".*No such file"),
        "the executors have no {0}: set PYSPARK_PYTHON to a Python with holdfast[pipeline] on their hosts",
    ),
    (
        re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\S+)"),
        "Spark Connect needs {0}, which is not installed: pip install 'holdfast[connect]'",
    ),
    (
        re.compile(r"(StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED)"),
        "the Spark Connect server does not answer: see holdfast-pipeline server status, or your SPARK_REMOTE",
    ),
    (_DISK_FULL, _FREE_SPACE),
    (re.compile(r"(?m)^\s*(?:Caused by: )?(?:\w+\.)*\w*(?:Error|Exception): (?!Job aborted|Traceback)(\S.*)"), "{0}"),
)
_NO_JAVA = "JAVA_GATEWAY_EXITED"
_NO_MASTER = "All masters are unresponsive"
#: Lines in which spark-submit and Java explain a failed start; the group is the explanation.
_EXPLANATION = re.compile(
    r"(?=Error\b|Exception\b|Caused by\b|Unrecognized|\S*spark\S*: )"
    r"(?:Error: |Exception in thread \S+ |Caused by: )?(?:[\w.$]+(?:Exception|Error): )?(.*)"
)
#: Longer texts are cut: they were not written for this console.
_MAX_LENGTH = 400


def failure_text(error: BaseException, output: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> str:
    """Explain an error in one line; ``output`` are the last lines of Spark's output."""
    text = str(error)
    if isinstance(error, PySparkException) and error.getCondition() == _NO_JAVA:
        return java_problem(environment) or f"Spark did not start: {_explanation(output)}"
    if any(_NO_MASTER in line for line in output):
        return "the master does not answer: check MASTER, spark.master or --master, and whether the master runs"
    for pattern, message in _MESSAGES:
        if found := pattern.findall(text):
            return message.format(found[-1])[:_MAX_LENGTH]
    if full := [found for line in output for found in _DISK_FULL.findall(line)]:
        return _FREE_SPACE.format(full[-1])  # the error of a failed stream does not contain this cause
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_MAX_LENGTH] if lines else type(error).__name__


def _explanation(output: Sequence[str]) -> str:
    found = next((match[1] for line in output if (match := _EXPLANATION.match(line))), None)
    return (found or "it does not tell why; --verbose shows all of its output")[:_MAX_LENGTH]


#: Without these, Spark shows its jobs to every host at port 4040, its driver listens at the host's own address, and it
#: reads the Java objects that any local user sends to its port. Spark makes the secret of a local master itself.
_LOCAL_SETTINGS = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.authenticate": "true"}
#: Seconds to wait until the session has stopped, and until the process has ended.
_STOP_TIMEOUT, _END_TIMEOUT = 5.0, 5.0


class SparkProcess(AbstractContextManager["SparkProcess", None]):
    """Spark for one command. Leaving the context stops the session that :meth:`start` began.

    With ``uses_server``, it is the user's server if that runs (:mod:`.server`), instead of a process of its own.
    With ``quiet``, nothing of its output reaches the console. ``on_start`` is called when the session exists: from
    then on PySpark handles SIGINT itself, unless ``on_start`` sets another handler.
    """

    def __init__(
        self, name: str, *, quiet: bool = True, uses_server: bool = False, on_start: Callable[[], None] = lambda: None
    ) -> None:
        self._name = name
        self._uses_server = uses_server
        self._on_start = on_start
        self._output = SparkOutput() if quiet else None
        self._session: SparkSession | None = None
        if quiet:  # py4j logs interrupted calls with tracebacks
            logging.getLogger().addHandler(logging.NullHandler())

    def start(self, is_small: bool = False, on_cluster: Callable[[], None] = lambda: None, /) -> SparkSession:
        """Return a session with the settings of the jobs; an active session is used, and never stopped.

        If the input ``is_small``, a new process and its session get settings for a short job. ``on_cluster`` is called
        before the session starts if its tasks may run on other hosts; what it raises ends the start.
        """
        session = SparkSession.getActiveSession()
        if session is not None and has_remote_tasks(session):
            on_cluster()
        if session is None:
            if self._uses_server:
                use_server(os.environ)
            # A user's own options come last, and win.
            options = java_options(os.environ, os.getpid(), is_small), os.environ.get("SPARK_SUBMIT_OPTS", "")
            os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options)
            with phase(starting_text()), self._output.captured() if self._output else nullcontext():
                # A Spark Connect server has settings of its own.
                master = "" if "SPARK_REMOTE" in os.environ else _start_java()
                if not is_used(os.environ) and uses_other_hosts(os.environ.get("SPARK_REMOTE", master), os.environ):
                    on_cluster()
                choose_worker_python(os.environ, is_local=False)
                session = self._session = SparkSession.builder.appName(self._name).getOrCreate()
            self._on_start()
            if is_used(os.environ):
                give_up_soon(session)
                if has_remote_tasks(session):
                    on_cluster()
        prepare(session, is_small and self._session is not None)
        follow_tasks(tasks_of(session))
        return session

    def __exit__(self, *_error: object) -> None:
        """Stop the session."""
        if self._session is not None:
            stopping = Thread(target=_stop, args=(self._session,), daemon=True)
            stopping.start()
            stopping.join(_STOP_TIMEOUT)

    def kill(self, error: BaseException) -> None:
        """End the Java process now; ``error`` is the exception that interrupted the start or a call."""
        process = getattr(SparkContext._gateway, "proc", None) or _process_in(error)
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def failure_text(self, error: BaseException) -> str:
        """Explain an error in one line, with the help of the last lines of Spark's output."""
        return failure_text(error, self._output.lines if self._output else ())


def starting_text() -> str:
    """Return the name of the phase of a start: a process of a low priority may wait long for other work to end."""
    waits = os.getpriority(os.PRIO_PROCESS, 0) > 0 and os.getloadavg()[0] > (os.cpu_count() or 1)
    return "starting Spark, while other work has the processors" if waits else "starting Spark"


def _start_java() -> str:
    """Start the Java process; return the master of its settings, "" for none."""
    let_workers_find(os.environ)
    # The first call starts Java, which reads all settings.
    master: str = SparkContext.getSystemProperty("spark.master") or ""
    if is_local(master):
        for key, value in _LOCAL_SETTINGS.items():
            if SparkContext.getSystemProperty(key) is None:
                SparkContext.setSystemProperty(key, value)
        choose_worker_python(os.environ, is_local=True)
    return master


def _process_in(error: BaseException) -> subprocess.Popen[bytes] | None:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    values = (value for frame in frames for value in frame.f_locals.values())
    return next((value for value in values if isinstance(value, subprocess.Popen)), None)


def _stop(session: SparkSession) -> None:
    # If the Java process has died, the session cannot be stopped, and need not be.
    with suppress(PySparkException, Py4JError, OSError):
        session.stop()
