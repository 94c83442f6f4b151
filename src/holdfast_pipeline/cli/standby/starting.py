"""Starts the standby beside the Spark server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast_pipeline.cli.standby.place import connected, peer

#: Seconds that it may take to import everything; to answer.
_STARTS, _ANSWERS = 60.0, 5.0
_PAUSE = 0.05


def start_standby(environment: Mapping[str, str], folder: Path, server: int, rehearse: bool = False) -> int | None:
    """Start a standby in the folder of the server with this process id, unless there is one. Return its process id.

    With ``rehearse``, the new standby runs commands on a sample first, while no others come.
    None: it has ended at once, or took too long. Commands then run as usual; its log is in ``folder/logs``.
    """
    found = standby_process(environment)
    if found is not None:
        return found
    arguments = [sys.executable, "-m", "holdfast_pipeline.cli.standby", str(folder), str(server)]
    if rehearse:
        arguments.append("rehearse")
    with open(folder / "logs" / "standby.log", "ab") as log:
        process = subprocess.Popen(  # noqa: S603 - this Python, with the user's own folder
            arguments, env=dict(environment), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + _STARTS
    while process.poll() is None and time.monotonic() < deadline:
        if standby_process(environment) == process.pid:
            return process.pid
        time.sleep(_PAUSE)
    process.kill()
    process.wait()
    return None


def standby_process(environment: Mapping[str, str]) -> int | None:
    """Return the process id of the user's standby, None if there is none."""
    connection = connected(environment, _ANSWERS)
    if connection is None:
        return None
    with connection:
        return peer(connection)[0]
