"""The files of the log. Twistd opens them; tools such as logrotate rename them while the broker runs."""

from __future__ import annotations

from attrs import frozen
from twisted.logger import globalLogPublisher
from twisted.python.logfile import BaseLogFile


@frozen
class Reopened:
    """The paths of the log files that were opened again, and the reasons of those that could not be."""

    paths: tuple[str, ...]
    failures: tuple[str, ...]


def reopen_log_files() -> Reopened:
    """Open each log file again by its path, so that a file that was renamed or deleted gets no further lines.

    A file that cannot be opened again stays in use as it is, so that no line is lost.
    """
    paths, failures = [], []
    for file in _log_files():
        try:
            # Tried first: Twisted closes the old file before it opens the new one, and would be left without any.
            with open(file.path, "ab"):
                pass
            file.reopen()
        except OSError as error:
            failures.append(f"{file.path}: {error.strerror or error}")
        else:
            paths.append(file.path)
    return Reopened(tuple(paths), tuple(failures))


def _log_files() -> list[BaseLogFile]:
    """Return the open files that Twisted's log is written to."""
    # Twisted has no public way from the log to its files, and twistd keeps the file that it opens to itself.
    written = [getattr(observer, "_outFile", None) for observer in globalLogPublisher._observers]
    return [file for file in written if isinstance(file, BaseLogFile) and not file.closed]
