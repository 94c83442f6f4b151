"""Upgrades that are killed: for each number on stdin, a process upgrades the database and dies at that statement.

Run as ``python -m tests.migrations.killed URL MIGRATIONS``. Answers with the signal that has killed it, 0 when it came
to its end. Each upgrade has a process of its own, forked from this one, which has everything imported and no connection
open.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path

from sqlalchemy import Engine, event

from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at, upgrade_schema
from tests.migrations.later import become


def upgrade_killed_at(url: str, number: int) -> None:
    """Upgrade, and be killed right before this statement. A commit counts as a statement."""
    statements = count()

    def die(*_: object) -> None:
        if next(statements) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", die)
    event.listen(Engine, "commit", die)
    upgrade_schema(database_at(url, Durability.FULL, 0, 0), lambda _: None)


def main() -> None:
    """Answer every number."""
    become(Path(sys.argv[2]))
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                upgrade_killed_at(sys.argv[1], int(line))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    main()
