"""Running a command: its Spark process, its signals, its result, its failure in one line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import click

from holdfast.core.terminal import ExitStatus, printable, printable_json
from holdfast_pipeline.cli.options import NO_SERVER, VERBOSE, is_quiet
from holdfast_pipeline.errors import PipelineError, WrongUsage

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

    from pyspark.sql import SparkSession


# Signals that end a command: soon, in order, and with the exit status that shells expect.

#: The signals that end a command.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Shells add this to the number of the signal.
SIGNAL_STATUS = 128
#: Seconds until a signal's exception is raised again, after it was lost where Python ignores exceptions.
_AGAIN = 0.01


class EndedBySignal(BaseException):
    """A signal ends this process."""


class EndSignals:
    """The signals that end this process, handled while :meth:`handled` runs.

    The first signal raises :class:`EndedBySignal` wherever the process is. After :meth:`finish_first` it is only noted,
    so that the job can finish, and the second signal raises. Later signals raise again.

    Python ignores exceptions in destructors and in callbacks of weak references and of C. An exception of a signal that
    is lost there is raised again a moment later, by SIGALRM. A command that ends before that moment is interrupted too.
    """

    def __init__(self) -> None:
        self._received: list[int] = []
        self._ignored_at_first = 0
        self._report_ignored = sys.unraisablehook

    @property
    def received(self) -> bool:
        """Whether a signal has arrived."""
        return bool(self._received)

    @property
    def interrupted(self) -> bool:
        """Whether a signal has raised an exception: the job is not to be finished."""
        return len(self._received) > self._ignored_at_first

    @property
    def status(self) -> int:
        """The exit status after a signal."""
        return SIGNAL_STATUS + self._first

    @property
    def name(self) -> str:
        """The name of the signal."""
        return signal.Signals(self._first).name

    @property
    def _first(self) -> int:
        return self._received[0] if self._received else signal.SIGINT

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals that are not ignored; restore their handlers at the end."""
        before = {number: signal.getsignal(number) for number in (*END_SIGNALS, signal.SIGALRM)}
        self.listen()
        signal.signal(signal.SIGALRM, self._raise_again)
        self._report_ignored, sys.unraisablehook = sys.unraisablehook, self._ignored
        try:
            yield
            if self.interrupted:
                raise EndedBySignal
        except SystemExit:  # Click ends each command with this
            if self.interrupted:
                raise EndedBySignal from None
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = self._report_ignored
            for number, handler in before.items():
                if handler is not None:  # Python cannot restore a handler that it did not set
                    signal.signal(number, handler)

    def listen(self) -> None:
        """Set the handlers, also where another library has replaced them."""
        for number in END_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._receive)

    def finish_first(self) -> None:
        """Let the job finish after the first signal."""
        self._ignored_at_first = 1

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        if self.interrupted:
            raise EndedBySignal

    def _ignored(self, ignored: UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, EndedBySignal):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            self._report_ignored(ignored)

    def _raise_again(self, _number: int, _frame: FrameType | None) -> None:
        raise EndedBySignal


#: The keys of the function that starts the Spark of ``run``, and of the name of its present job.
_SHARED = "holdfast_pipeline.shared"
_JOB = "holdfast_pipeline.job"


class SparkStart(Protocol):
    """A function that starts Spark for a command; for one with a small input, if ``is_small``."""

    def __call__(self, is_small: bool = False, on_cluster: Callable[[], None] = lambda: None, /) -> SparkSession:
        """Return the session. If its tasks may run on other hosts, ``on_cluster`` is called before, and may refuse."""


@contextmanager
def running(name: str, has_jobs: bool = False) -> Iterator[SparkStart]:
    """Give the function that starts Spark for a command. A failure becomes one line, and exit status 1 or 2.

    The progress of the command is shown, unless it ``has_jobs``, whose progress is.

    A command first makes all checks that need no Spark, because Spark takes seconds to start.
    """
    from holdfast_pipeline.spark import SparkProcess

    shared: SparkStart | None = click.get_current_context().meta.get(_SHARED)
    if shared is not None:
        with failing_in_one_line(name, explained=True):
            yield shared
        return
    signals = end_signals()
    verbose = click.get_current_context().meta.get(VERBOSE, False)
    uses_server = not click.get_current_context().meta.get(NO_SERVER, False)
    process = SparkProcess(
        f"holdfast-pipeline {name}", quiet=not verbose, uses_server=uses_server, on_start=signals.listen
    )
    try:
        with process, nullcontext() if has_jobs else _progress(name):
            yield process.start
    except (Exception, EndedBySignal, KeyboardInterrupt) as error:
        # After a signal, any other exception is a result of the signal. While Spark starts, it handles SIGINT itself
        # for a moment, and raises KeyboardInterrupt.
        if signals.interrupted or isinstance(error, KeyboardInterrupt):
            process.kill(error)
            raise EndedBySignal from error
        if verbose or isinstance(error, (click.ClickException, ModuleNotFoundError)):
            raise
        fail(process.failure_text(error), ExitStatus.USAGE if isinstance(error, WrongUsage) else ExitStatus.FAILED)


def _progress(name: str) -> AbstractContextManager[None]:
    """Show the progress of a command as its options say. All output of Spark would tear a bar."""
    context = click.get_current_context()
    if not name or is_quiet(context):
        return nullcontext()
    from holdfast_pipeline.progress import shown

    as_json = bool(context.params.get("as_json"))
    return shown(context.meta.get(_JOB, name), as_json=as_json, bar=not context.meta.get(VERBOSE, False))


@contextmanager
def named_job(name: str) -> Iterator[None]:
    """Have the progress of the command that runs inside tell the name of a job."""
    with _kept(_JOB, name):
        yield


@contextmanager
def shared_by_jobs(start: SparkStart) -> Iterator[None]:
    """Have all commands that run inside use the Spark that ``start`` starts; it starts when the first one needs it."""
    with _kept(_SHARED, start):
        yield


@contextmanager
def _kept(key: str, value: object) -> Iterator[None]:
    """Have the commands that run inside find a value in Click's context."""
    meta = click.get_current_context().meta
    meta[key] = value
    try:
        yield
    finally:
        del meta[key]


@contextmanager
def failing_in_one_line(name: str = "", explained: bool = False) -> Iterator[None]:
    """End a command with one line and status 1, or 2 for a wrong command line, on its errors.

    With the ``name`` of the command, its progress is shown.

    Without ``explained``, other exceptions than this package's leave the command: it works without Spark.
    """
    signals = end_signals()
    try:
        with _progress(name):
            yield
    except Exception as error:
        if signals.interrupted:  # a library has turned the signal's exception into an error of its own
            raise EndedBySignal from error
        known = isinstance(error, PipelineError) or (explained and not isinstance(error, click.ClickException))
        if not known or click.get_current_context().meta.get(VERBOSE, False):
            raise
        fail(
            _failure_text(error) if explained else str(error),
            ExitStatus.USAGE if isinstance(error, WrongUsage) else ExitStatus.FAILED,
        )


@contextmanager
def checking_options() -> Iterator[None]:
    """Take errors in the values of options for a wrong command line."""
    try:
        yield
    except PipelineError as error:
        raise WrongUsage(str(error)) from error


def _failure_text(error: Exception) -> str:
    from holdfast_pipeline.spark import text_of_failure

    return text_of_failure(error)


def end_signals() -> EndSignals:
    """Return the signals that end the running command."""
    return click.get_current_context().ensure_object(EndSignals)


def fail(message: str, status: ExitStatus = ExitStatus.FAILED) -> NoReturn:
    """Print the message in one line, and end."""
    say(message)
    raise SystemExit(status)


def say(text: str) -> None:
    """Print a line on standard error."""
    click.echo(printable(text), err=True)


def print_result(result: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    """Print the result: a sentence for people, or one line of JSON for programs."""
    click.echo(printable_json(result) if as_json else printable(sentence))
