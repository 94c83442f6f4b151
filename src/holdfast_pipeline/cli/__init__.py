"""The command ``holdfast-pipeline``: ``root`` lists the subcommands, and ``commands`` has a module for each.

``python -m`` and spark-submit start :func:`main` too. It imports Spark only when a subcommand runs. Beside a
Spark server, a ``standby`` that has imported everything runs the subcommands.
"""

from __future__ import annotations

import sys

from holdfast_pipeline.cli.standby.client import run_by_standby


def main() -> None:
    """Run the command: by the standby if there is one, or in this process."""
    status = run_by_standby(sys.argv[1:])
    if status is not None:
        sys.exit(status)
    from holdfast_pipeline.cli.process import run_here

    run_here()
