"""Calls that import messages: ``/merge`` merges a staging area, ``/import`` stages the lines of its body first."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any
from uuid import uuid4

from attrs import asdict

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.parameters import REFUSALS
from holdfast.admin.arguments import (
    INTEGER,
    STRING,
    Schema,
    array,
    choice_of,
    not_json,
    number_of,
    one_of,
    record,
    request,
    whole,
)
from holdfast.admin.call import NDJSON, Answer, Call, Scope, answer, bad_request
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.core.strict_json import BadJSON, read_json
from holdfast.core.terminal import safe_json
from holdfast.core.tickets import StorageFailure
from holdfast.retained.fields import BadRecord
from holdfast.retained.import_jobs import LONGEST_NAME, REJECTED, OtherJob
from holdfast.retained.importing import ImportJob, Merger, Progress
from holdfast.retained.staging import NotStaged, StagedFiles, StagedRows, StagedTable, Staging, row_in
from holdfast.retained.verdicts import Merge
from holdfast.scheduling.waiting import as_deferred

#: The most lines of one call to import.
MOST_LINES = 10_000
#: The reactor does its other work after this many lines, or this many bytes.
LINES_IN_TURN = 500
BYTES_IN_TURN = 1 << 20
_MOST = 2**53
_JOB: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
_RULE = query("merge", one_of(*(one.value for one in Merge)), "what happens to a topic that the database knows")
_STAGING: Schema = {
    "oneOf": [
        request({"files": array(STRING)}, required=("files",)),
        request({"table": STRING, "attempts": array(INTEGER)}, required=("table", "attempts")),
    ]
}


class MergeCalls:
    """Answers calls that import messages."""

    def __init__(self, merger: Merger) -> None:
        self._merger = merger
        self.routes = routes_of(self)

    @Route(
        method="POST",
        path=f"{API_PREFIX}/merge",
        scope=Scope.ADMIN,
        stores=True,
        has_deadline=False,
        control_only=True,  # it names files of this machine
        summary="Merge a staging area into the retained messages, and answer with a line for each part",
        parameters=(
            query("job", _JOB, "the name of the job", required=True),
            _RULE,
            query("rejected", whole(1, _MOST), "the rows that were rejected before"),
        ),
        body=Content(_STAGING, "the staging area", most_bytes=None),
        answers={200: Content(STRING, "the progress", NDJSON)},
        refusals=REFUSALS,
    )
    @as_deferred
    async def merge(self, call: Call) -> Answer:
        """Merge a staging area, and answer with a line for each part.

        So no time-out ends a long merge. The last line has the state "done", or "failed" and a message.
        """
        name = call.arguments.get("job", "")
        if not 0 < len(name) <= LONGEST_NAME or "\0" in name:
            raise bad_request(f"job is the name of the job, of at most {LONGEST_NAME} characters", "job")
        merge = _merge_of(call.arguments)
        rejected = number_of(call.arguments, "rejected", 0, _MOST)
        staging: Staging | None = None
        try:
            staging = _staging_of(call.body)
            job = ImportJob(name, staging, merge, rejected)
            first: Progress | None = await self._merger.step(job)
        except (NotStaged, OtherJob) as error:
            if staging is not None:
                staging.close()
            raise bad_request(str(error)) from error
        over = False

        @as_deferred
        async def more() -> bytes:
            nonlocal first, over
            if over:
                return b""
            over = True  # until this step succeeds: after an error or a cancellation nothing may follow
            progress, first = first, None
            try:
                if progress is None:
                    progress = await self._merger.step(job)
            except (StorageFailure, NotStaged, OtherJob) as error:
                message = error.detail if isinstance(error, StorageFailure) else str(error)
                return _line({"state": "failed", "message": message})
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

    @Route(
        method="POST",
        path=f"{API_PREFIX}/import",
        scope=Scope.RETAINED_WRITE,
        stores=True,
        summary="Import the lines of an export",
        parameters=(_RULE,),
        body=Content(STRING, "the lines", NDJSON, required=False, most_bytes=None),
        answers={200: Content(record({"rejects": array({"type": "object"})}), "the numbers of messages")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def import_lines(self, call: Call) -> Answer:
        """Import the lines of an export; answer with counts, and with the line number and reason of each reject."""
        merge = _merge_of(call.arguments)
        if call.body.count(b"\n") > MOST_LINES:
            raise bad_request(f"at most {MOST_LINES} lines at once")
        staging, rejects, now = StagedRows(), list[dict[str, Any]](), self._merger.now()
        number_of_topic: dict[str, int] = {}
        for lines in _parts(call.body):
            for number, line in lines:
                try:
                    row = row_in(line, now)
                except BadRecord as error:
                    rejects.append({"line": number, "code": "BAD_REQUEST", "message": str(error)})
                else:
                    if staging.add(row):
                        number_of_topic[row.topic] = number
            await self._merger.pause()
        # Nobody can repeat this call under the job's name, so its record is not kept.
        job = ImportJob(f"import {uuid4().hex}", staging, merge, temporary=True)
        done = False
        while not done:
            progress: Progress = await self._merger.step(job)
            done = progress.job.is_done
            rejects += [
                {"line": number_of_topic[reject.topic], "code": "EXCEED_LIMIT", "message": reject.reason}
                for reject in progress.rejects
            ]
        counts = {name: count for name, count in progress.job.counts.items() if name != REJECTED}
        return answer({**counts, "rejects": sorted(rejects, key=lambda reject: int(reject["line"]))})


def _merge_of(arguments: Mapping[str, str]) -> Merge:
    return Merge(choice_of(arguments, "merge", tuple(one.value for one in Merge), Merge.NEWER.value))


def _line(content: dict[str, Any]) -> bytes:
    return safe_json(content).encode() + b"\n"


def _staging_of(body: bytes) -> Staging:
    """Return the staging area that the body names.

    It is ``{"files": [path, ...]}``, or ``{"table": name, "attempts": [number, ...]}``.
    """
    try:
        said = read_json(body)
    except BadJSON as error:
        raise not_json(error) from None
    match said:
        case {"files": [*files]} if all(isinstance(path, str) for path in files) and len(said) == 1:
            return StagedFiles(files)
        case {"table": str(table), "attempts": [*attempts]} if all(type(one) is int for one in attempts):
            return StagedTable(table, attempts)
    raise bad_request('the body names the staging area: {"files": [...]}, or {"table": "...", "attempts": [...]}')


def _parts(body: bytes) -> Generator[list[tuple[int, bytes]]]:
    """Split a body into parts of a bounded number of lines and bytes; each line has its number. Skip empty lines."""
    lines: list[tuple[int, bytes]] = []
    start, number, size = 0, 0, 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        number += 1
        line = body[start:end].strip()
        start = end + 1
        if line:
            lines.append((number, line))
            size += len(line)
        if len(lines) >= LINES_IN_TURN or size >= BYTES_IN_TURN:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines
