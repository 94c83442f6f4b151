"""``holdfast-pipeline server``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli.running import failing_in_one_line, print_result
from holdfast_pipeline.errors import WrongUsage

if TYPE_CHECKING:
    from holdfast_pipeline.spark import Server

_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")


@click.group()
def server() -> None:
    """Keep a Spark process running, which saves commands its start.

    All commands of the same user and the same installation use it. It takes 1 to 2 GB of memory until it is stopped.
    """


@server.command()
@click.option("--memory", help='The most memory of its Java, such as "2g".  [default: spark.driver.memory, or 1g]')
@_JSON
def start(memory: str | None, as_json: bool) -> None:
    """Start the server, unless it runs."""
    from holdfast_pipeline.spark import running_server, start_server

    with failing_in_one_line():
        if memory is not None and not re.fullmatch(r"[1-9][0-9]{0,8}[mg]", memory):
            raise WrongUsage(f'--memory: {memory!r} is not a size of memory; write it as in "512m" or "2g"')
        ran = running_server(os.environ) is not None
        found = start_server(os.environ, memory)
    fields = {"running": True, "started": not ran, **_fields(found)}
    verb = "runs already" if ran else "runs"
    print_result(
        fields, as_json, f"the server {verb}: process {found.pid}, 127.0.0.1:{found.port}, log in {found.logs}"
    )


@server.command()
@_JSON
def status(as_json: bool) -> None:
    """Tell whether the server runs: the exit status is 0 if it does, and 3 if not."""
    from holdfast_pipeline.spark import running_server

    with failing_in_one_line():
        found = running_server(os.environ)
    if found is None:
        print_result({"running": False}, as_json, "no server runs")
        raise SystemExit(ExitStatus.FOUND)
    sentence = f"the server runs: process {found.pid}, 127.0.0.1:{found.port}, log in {found.logs}"
    print_result({"running": True, **_fields(found)}, as_json, sentence)


@server.command()
@_JSON
def stop(as_json: bool) -> None:
    """Stop the server, if it runs. Commands that it works for fail."""
    from holdfast_pipeline.spark import stop_server

    with failing_in_one_line():
        found = stop_server(os.environ)
    sentence = "no server ran" if found is None else f"the server has ended: process {found.pid}"
    print_result({"running": False, "stopped": found is not None}, as_json, sentence)


def _fields(server: Server) -> dict[str, Any]:
    return {"pid": server.pid, "port": server.port, "logs": server.logs}
