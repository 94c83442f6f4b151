"""The Spark process of one command: started quietly, reachable from this host only, ended with the command.

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
import subprocess
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Thread

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast_pipeline.progress.phases import follow_tasks, phase
from holdfast_pipeline.spark.console import SparkOutput
from holdfast_pipeline.spark.failure_text import failure_text
from holdfast_pipeline.spark.java_classes import java_options
from holdfast_pipeline.spark.server import give_up_soon, is_used, use_server
from holdfast_pipeline.spark.session import is_local, prepare
from holdfast_pipeline.spark.shared_storage import has_remote_tasks, uses_other_hosts
from holdfast_pipeline.spark.tasks import tasks_of
from holdfast_pipeline.spark.worker_python import choose_worker_python, let_workers_find

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
                if uses_other_hosts(os.environ.get("SPARK_REMOTE", master), os.environ):
                    on_cluster()
                choose_worker_python(os.environ, is_local=False)
                session = self._session = SparkSession.builder.appName(self._name).getOrCreate()
            self._on_start()
            if is_used(os.environ):
                give_up_soon(session)
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
