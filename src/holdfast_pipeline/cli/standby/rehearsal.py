"""Runs commands on a sample beside a new server. Java compiles their code before the user's commands come."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from attrs import frozen

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli.standby.sample import commands_on_sample, write_sample

#: The folder of a rehearsal, in that of the server: it is there as long as the rehearsal runs.
_NAME = "rehearsal"
#: The standard error of the last command.
_LOG = "log"
_DONE = (ExitStatus.DONE, ExitStatus.FOUND)


@frozen
class Rehearsal:
    """A process that runs one command after the other, each in a fork. It is held while a user's command runs.

    ``ended`` is a file descriptor that can be read when the process has ended.
    """

    folder: Path
    process: int
    ended: int

    @classmethod
    def begin(cls, server_folder: Path, prepare: Callable[[], object], run: Callable[[], int]) -> Rehearsal:
        """Begin it in a fork, which calls ``prepare`` first, and for each command ``run``, which returns its status.

        Raises :class:`OSError`.
        """
        remove_leftover(server_folder)
        folder = server_folder / _NAME
        folder.mkdir(mode=0o700)
        try:
            process = os.fork()
        except OSError:  # no memory, or too many processes
            remove_leftover(server_folder)
            raise
        if not process:
            os.setpgid(0, 0)
            prepare()
            _rehearse(folder, run)
        with suppress(ProcessLookupError):  # it has ended already
            os.setpgid(process, process)
        return cls(folder, process, os.pidfd_open(process))

    def hold(self) -> None:
        """Stop its processes until :meth:`go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Have its processes go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End its processes, and remove its folder."""
        self._signal(signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.ended)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process, number)


def rehearses(server_folder: Path) -> bool:
    """Tell whether a rehearsal runs in the folder of a server that has a standby."""
    return (server_folder / _NAME).exists()


def remove_leftover(server_folder: Path) -> None:
    """Remove the folder of a rehearsal whose standby was killed, so that nobody takes it for one that runs."""
    shutil.rmtree(server_folder / _NAME, ignore_errors=True)


def _rehearse(folder: Path, run: Callable[[], int]) -> NoReturn:
    status: int = ExitStatus.FAILED
    try:
        os.chdir(folder)
        write_sample(folder)
        for arguments in commands_on_sample():
            status = _status(arguments, run)
            if status not in _DONE:
                said = Path(_LOG).read_text(errors="replace").strip()
                print(
                    f"the rehearsal has ended early: {shlex.join(arguments)}: status {status}: {said}", file=sys.stderr
                )
                break
    except Exception:  # noqa: BLE001 - told as at the end of any program
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(ExitStatus.DONE if status in _DONE else ExitStatus.FAILED)


def _status(arguments: Sequence[str], run: Callable[[], int]) -> int:
    process = os.fork()
    if not process:
        sys.argv[1:] = arguments
        for stream, path in enumerate((os.devnull, os.devnull, _LOG)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), stream)
        os._exit(run())
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
