"""Calls to merge what jobs have staged: answered with a line for each chunk, so that no time-out hits a long one."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

from attrs import asdict
from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.arguments import number_of
from holdfast.admin.calls import NDJSON, Answer, Call, Routes, bad_request
from holdfast.retained.importing.jobs import OtherJob
from holdfast.retained.importing.merging import Merger, Progress
from holdfast.retained.importing.staging import NotStaged, StagedFiles, StagedTable, Staging
from holdfast.retained.importing.verdicts import Merge
from holdfast.tickets import StorageFailure

_LONGEST_NAME = 200
_MOST = 2**53


class MergeCalls:
    """Answers calls of jobs."""

    def __init__(self, merger: Merger) -> None:
        self._merger = merger
        self.routes: Routes = {"/merge": {"POST": (self.merge, ("job", "merge", "rejected"))}}

    @inlineCallbacks
    def merge(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Merge all that a job has staged. The last line has the state "done", or says what went wrong."""
        name = call.arguments.get("job", "")
        if not 0 < len(name) <= _LONGEST_NAME or "\0" in name:
            raise bad_request(f"job is the name of the job, of at most {_LONGEST_NAME} characters")
        try:
            merge = Merge(call.arguments.get("merge", Merge.NEWER.value))
        except ValueError:
            raise bad_request(f"merge is one of {', '.join(one.value for one in Merge)}") from None
        rejected = number_of(call.arguments, "rejected", 0, _MOST)
        staging: Staging | None = None
        try:
            staging = _staging(call.body)
            first: Progress | None = yield self._merger.step(name, staging, merge, rejected)
        except (NotStaged, OtherJob) as error:
            if staging is not None:
                staging.close()
            raise bad_request(str(error)) from error
        over = False

        @inlineCallbacks
        def more() -> Generator[Deferred[Any], Any, bytes]:
            nonlocal first, over
            if over:
                return b""
            over = True  # unless it goes well: who has been cancelled is not asked again
            progress, first = first, None
            try:
                if progress is None:
                    progress = yield self._merger.step(name, staging, merge, rejected)
            except (StorageFailure, NotStaged, OtherJob) as error:
                return _line({"state": "failed", "message": str(error)})
            finally:
                if progress is None or progress.job.is_done:
                    staging.close()
            over = progress.job.is_done
            return _line(
                {
                    "state": progress.job.state,
                    "counts": dict(progress.job.counts),
                    "rejects": [asdict(reject) for reject in progress.rejects],
                }
            )

        return Answer(content_type=NDJSON, more=more)


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def _staging(body: bytes) -> Staging:
    """Return the staging area that is named: ``{"files": [path, ...]}``, or ``{"table": name, "attempts": [...]}``."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    match said:
        case {"files": [*files]} if all(isinstance(path, str) for path in files) and len(said) == 1:
            return StagedFiles(files)
        case {"table": str(table), "attempts": [*attempts]} if all(type(one) is int for one in attempts):
            return StagedTable(table, attempts)
    raise bad_request('the body says what is staged: {"files": [...]}, or {"table": "...", "attempts": [...]}')
