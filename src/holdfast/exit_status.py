"""The exit statuses of all commands."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """One convention for ``holdfast`` and ``holdfast-pipeline``."""

    #: all is done, and nothing was found
    DONE = 0
    #: the command could not do its work: also if a file is missing or cannot be read
    FAILED = 1
    #: the command line is wrong; nothing was tried
    USAGE = 2
    #: the work is done and found something to examine: problems, damage, differences, refused messages
    FOUND = 3
