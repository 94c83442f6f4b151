"""Calls about jobs: list them, show one with its progress, cancel one."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.address import JOBS_PATH
from holdfast.admin.arguments import INTEGER, NUMBER, STRING, TIME, array, nullable, record
from holdfast.admin.call import DONE, Answer, Call, RefusedCall, Scope, answer, not_found
from holdfast.admin.jobs import Job, Jobs, State
from holdfast.admin.routing import NOTHING, Content, Route, in_path, routes_of

#: what a call that begins a job answers with
JOB = record(
    {
        "id": STRING,
        "kind": STRING,
        "about": STRING,
        "by": STRING,
        "state": {"type": "string", "enum": [state.value for state in State]},
        "progress": record({"done": INTEGER, "total": nullable(INTEGER), "rate": NUMBER}),
        "began_at": TIME,
        "ended_at": nullable(TIME),
        "result": {},
        "message": nullable(STRING),
    }
)
_NUMBER = in_path("id", STRING, "the number of the job")


class JobCalls:
    """Answers calls about jobs."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=JOBS_PATH,
        scope=Scope.READ,
        summary="List the running jobs, and those that ended within the last hour",
        answers={200: Content(record({"data": array(JOB)}), "the jobs, the oldest first")},
    )
    def list_jobs(self, _call: Call) -> Deferred[Answer]:
        """List the jobs."""
        return succeed(answer({"data": [job.shown() for job in self._jobs.all()]}))

    @Route(
        method="GET",
        path=f"{JOBS_PATH}/{{id}}",
        scope=Scope.READ,
        summary="Show a job: its progress, and its result after its end",
        parameters=(_NUMBER,),
        answers={200: Content(JOB, "the job")},
    )
    def one(self, call: Call) -> Deferred[Answer]:
        """Show a job."""
        return succeed(answer(self._job(call).shown()))

    @Route(
        method="DELETE",
        path=f"{JOBS_PATH}/{{id}}",
        scope=Scope.RETAINED_WRITE,
        summary="Cancel a running job, or forget an ended one: your own, or with the scope admin any",
        parameters=(_NUMBER,),
        answers={204: NOTHING},
    )
    def cancel(self, call: Call) -> Deferred[Answer]:
        """Cancel a job. Without the scope admin, only a job that this caller has begun."""
        job, caller = self._job(call), call.caller
        if not (caller.may(Scope.ADMIN) or job.by == str(caller)):
            raise RefusedCall(http.FORBIDDEN, "FORBIDDEN", f"this job of {job.by} needs the scope admin")
        self._jobs.cancel(job)
        return succeed(DONE)

    def _job(self, call: Call) -> Job:
        job = self._jobs.find(call.arguments["id"])
        if job is None:
            raise not_found("there is no such job; the results of jobs are kept for an hour")
        return job
