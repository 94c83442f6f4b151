"""The command ``holdfast-pipeline``."""

from __future__ import annotations

import sys

from holdfast.pipeline.ending import Ended, Ending

_NEEDED = ("pyspark", "py4j", "pyarrow", "psycopg")


def main() -> None:
    """Run the command; a signal ends it in order, and what it needs and is not installed is named."""
    ending = Ending()
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
