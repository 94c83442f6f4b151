"""The command ``holdfast-pipeline``: ``root`` lists the subcommands, and ``commands`` has a module for each.

``python -m`` and spark-submit start :func:`main` too. It imports Spark only when a subcommand runs.
"""

from __future__ import annotations

import os
import sys

from holdfast_pipeline.cli.running import EndedBySignal, EndSignals

#: The command's priority (see nice(1)): the broker on the same host is served first.
_NICENESS = 10
_NEEDED = ("pyspark", "py4j", "pyarrow", "psycopg")


def main() -> None:
    """Run the command. A signal ends it in order; a missing package is named in one line."""
    signals = EndSignals()
    _lower_priority()
    try:
        with signals.handled():
            from holdfast_pipeline.cli.root import main as run

            run(obj=signals, prog_name="holdfast-pipeline")
    except EndedBySignal:
        print(f"\nended by {signals.name}" if sys.stderr.isatty() else f"ended by {signals.name}", file=sys.stderr)
        sys.exit(signals.status)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.exit(f"{missing} is not installed; holdfast-pipeline needs: pip install 'holdfast[pipeline]'")


def _lower_priority() -> None:
    """Lower the priority of this process, unless the user has set one. Spark's processes inherit it."""
    if os.getpriority(os.PRIO_PROCESS, 0) == 0:
        os.nice(_NICENESS)
