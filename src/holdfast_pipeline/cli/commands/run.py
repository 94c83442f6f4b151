"""``holdfast-pipeline run``."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import named_job, print_result, running, say, shared_by_jobs
from holdfast_pipeline.errors import WrongUsage
from holdfast_pipeline.formatting import counted

if TYPE_CHECKING:
    from holdfast_pipeline.cli.job_file import Job

_WORDS: dict[int, str] = {ExitStatus.DONE: "done", ExitStatus.FOUND: "done, and found something"}


@click.command()
@click.argument("file")
@click.option("--only", multiple=True, help="Only the job with this name. May be repeated.")
@click.option("--dry-run", is_flag=True, help="Check the file, print the commands of its jobs, and run none.")
@options.console
@click.pass_context
def run(context: click.Context, file: str, only: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Run the jobs in the TOML file FILE one after the other, in one Spark process.

    The exit status is 1 if a job failed, else 3 if one found something to examine.
    """
    from pathlib import Path

    from holdfast_pipeline.cli.job_file import read_jobs

    parent = context.parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    with running("run", has_jobs=True) as start:
        jobs = read_jobs(Path(file), parent.command, context)
        unknown = set(only) - {job.name for job in jobs}
        if unknown:
            raise WrongUsage(f"--only: {file} has no job {', '.join(sorted(unknown))}")
        jobs = tuple(job for job in jobs if not only or job.name in only)
        if dry_run:
            for job in jobs:
                click.echo(shlex.join(["holdfast-pipeline", str(job.command.name), *job.arguments]))
            return
        results = []
        with shared_by_jobs(lambda _is_small=False, *checks: start(False, *checks)):
            for job in jobs:
                begun = time.monotonic()
                with named_job(job.name):
                    status = _status(context, job, as_json)
                seconds = time.monotonic() - begun
                results.append({"name": job.name, "status": int(status), "seconds": round(seconds, 1)})
                say(f"{job.name}: {_WORDS.get(status, 'failed')} after {seconds:.1f} s")
                if status not in (ExitStatus.DONE, ExitStatus.FOUND) and job.stops:
                    break
    statuses = [result["status"] for result in results]
    left = len(jobs) - len(results)
    failed = [status for status in statuses if status not in (ExitStatus.DONE, ExitStatus.FOUND)]
    sentence = f"{counted(len(results), 'job')} run, {len(failed)} failed" + (f", {left} left out" if left else "")
    print_result({"jobs": results, "left_out": left}, as_json, sentence)
    if failed or ExitStatus.FOUND in statuses:
        raise SystemExit(ExitStatus.FAILED if failed else ExitStatus.FOUND)


def _status(context: click.Context, job: Job, as_json: bool) -> int:
    """Run a job, and return its exit status."""
    prints_json = as_json and any("--json" in each.opts for each in job.command.params)
    line = [*(["--json"] if prints_json else []), *job.arguments]
    try:
        with job.command.make_context(job.command.name, line, parent=context) as own:
            job.command.invoke(own)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitStatus.FAILED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return ExitStatus.DONE
