"""Calls that create, list and delete backups of the database. A job creates a backup."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.api.jobs import JOB
from holdfast.admin.arguments import INTEGER, STRING, TIME, array, record
from holdfast.admin.call import DONE, Answer, Call, RefusedCall, Scope, answer, not_found, unavailable
from holdfast.admin.jobs import Job, Jobs, accepted
from holdfast.admin.routing import NOTHING, Content, Route, in_path, routes_of
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.core.units import second_of
from holdfast.storage.location import StoreUnusable

BACKUP_PATH, BACKUPS_PATH = "/api/v5/backup", "/api/v5/backups"

_NAME = re.compile(r"holdfast-\d{8}T\d{9}Z\.db", re.ASCII)
_BACKUP = record({"name": STRING, "size": INTEGER, "created_at": TIME})

#: Copies the database to a new file, in a thread. Calls the second argument with the copied and all parts.
Copy = Callable[[Path, Callable[[int, int], None]], None]
#: runs a function in a thread
Run = Callable[[Callable[[], Any]], Deferred[Any]]


class _Cancelled(Exception):
    """The job was cancelled."""


class BackupCalls:
    """Answers calls about backups. The first backup creates the folder.

    ``copy`` raises StoreUnusable; it is None for Postgres, which has tools of its own. ``flushed`` returns a ticket
    that is settled when all changes accepted before are stored or refused: a backup has them too.
    """

    def __init__(
        self,
        folder: Path,
        copy: Copy | None,
        jobs: Jobs,
        run: Run,
        now: Callable[[], int],
        flushed: Callable[[], CommitTicket] = lambda: COMMITTED,
    ) -> None:
        self._folder = folder
        self._copy = copy
        self._jobs = jobs
        self._run = run
        self._now = now
        self._flushed = flushed
        self._is_busy = False
        self.routes = routes_of(self)

    @Route(
        method="POST",
        path=BACKUP_PATH,
        scope=Scope.ADMIN,
        summary="Begin a backup of the SQLite database to a file in data_dir/backups",
        answers={202: Content(JOB, "the job; its result has name and size of the file")},
    )
    def back_up(self, call: Call) -> Deferred[Answer]:
        """Begin a backup."""
        if self._copy is None:
            raise RefusedCall(
                http.NOT_IMPLEMENTED, "NOT_SUPPORTED",
                "the database is Postgres: back it up with pg_dump --format=custom --file=TARGET",
            )  # fmt: skip
        if self._is_busy:
            raise RefusedCall(http.CONFLICT, "BUSY", "another backup is running; wait for its end")
        job = self._jobs.begin("backup", str(call.caller), self._work)
        done: Deferred[Answer] = Deferred()
        done.callback(accepted(job))
        return done

    @Route(
        method="GET",
        path=BACKUPS_PATH,
        scope=Scope.READ,
        summary="List the backups in data_dir/backups, the newest first",
        answers={200: Content(record({"data": array(_BACKUP)}), "the backups")},
    )
    def list_backups(self, _call: Call) -> Deferred[Answer]:
        """List the backups."""
        return self._run(self._files).addCallback(lambda files: answer({"data": files}))

    @Route(
        method="DELETE",
        path=f"{BACKUPS_PATH}/{{name}}",
        scope=Scope.ADMIN,
        summary="Delete a backup",
        parameters=(in_path("name", STRING, "the name of the file"),),
        answers={204: NOTHING},
        finishes=True,
    )
    def delete(self, call: Call) -> Deferred[Answer]:
        """Delete a backup."""
        name = call.arguments["name"]
        if _NAME.fullmatch(name) is None:
            raise not_found("there is no such backup")

        def failed(failure: Failure) -> Answer:
            failure.trap(OSError)
            if failure.check(FileNotFoundError):
                raise not_found("there is no such backup")
            raise unavailable(f"the backup cannot be deleted: {failure.value}")

        return self._run((self._folder / name).unlink).addCallbacks(lambda _: DONE, failed)

    def _work(self, job: Job) -> Deferred[Any]:
        copy = self._copy
        assert copy is not None
        now = self._now()
        name = f"holdfast-{datetime.fromtimestamp(now // 1000, UTC):%Y%m%dT%H%M%S}{now % 1000:03}Z.db"
        target = self._folder / name
        cancelled: list[bool] = []

        def report(done: int, total: int) -> None:
            if cancelled:
                raise _Cancelled
            job.done, job.total = done, total

        def work() -> dict[str, Any]:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            copy(target, report)
            return _shown(target)

        def ended(result: Any) -> None:
            self._is_busy = False
            if answering.called:  # cancelled; the thread has removed what it had written
                return
            if isinstance(result, Failure) and result.check(StoreUnusable, OSError):
                result = Failure(unavailable(str(result.value)))
            answering.callback(result)  # a Failure goes to the errbacks

        answering: Deferred[Any] = Deferred(lambda _: cancelled.append(True))
        self._is_busy = True

        def stored(_failure: object) -> None:
            self._run(work).addBoth(ended)

        self._flushed().when_settled(stored)
        return answering

    def _files(self) -> list[dict[str, Any]]:
        try:
            names = sorted((each.name for each in self._folder.iterdir() if _NAME.fullmatch(each.name)), reverse=True)
        except FileNotFoundError:
            return []
        return [_shown(self._folder / name) for name in names]


def _shown(file: Path) -> dict[str, Any]:
    state = file.stat()
    return {"name": file.name, "size": state.st_size, "created_at": second_of(round(state.st_mtime * 1000))}
