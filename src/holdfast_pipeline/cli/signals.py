"""Signals that end a command: soon, in order, and with the exit status that shells expect."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

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
