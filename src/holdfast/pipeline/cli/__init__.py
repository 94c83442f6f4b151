"""The command ``holdfast-pipeline``."""

from __future__ import annotations

import os
import sys

from holdfast.pipeline.spark.signals import Ended, Ending

#: How much a broker on the same host, and all that serves others, comes before a job (see nice(1)).
_NICENESS = 10
_NEEDED = ("pyspark", "py4j", "pyarrow", "psycopg")


def main() -> None:
    """Run the command; a signal ends it in order, and what it needs and is not installed is named."""
    ending = Ending()
    _give_way()
    try:
        with ending.heard():
            from holdfast.pipeline.cli.root import main as run

            run(obj=ending)
    except Ended:
        print(f"\nended by {ending.name}" if sys.stderr.isatty() else f"ended by {ending.name}", file=sys.stderr)
        sys.exit(ending.status)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.exit(f"{missing} is not installed; holdfast-pipeline needs: pip install 'holdfast[pipeline]'")


def _give_way() -> None:
    """Let others have the processor first; Spark's processes inherit it. Whoever has set a priority has meant it."""
    if os.getpriority(os.PRIO_PROCESS, 0) == 0:
        os.nice(_NICENESS)
