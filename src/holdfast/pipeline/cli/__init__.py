"""The command ``holdfast-pipeline``."""

from __future__ import annotations

import sys

_NEEDED = ("pyspark", "py4j", "pyarrow", "psycopg")


def main() -> None:
    """Run the command; where what it needs is not installed, say so."""
    try:
        from holdfast.pipeline.cli.root import main as run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.exit(f"{missing} is not installed; holdfast-pipeline needs: pip install 'holdfast[pipeline]'")
    run()
