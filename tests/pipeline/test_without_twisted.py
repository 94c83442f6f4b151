"""Spark's workers import no Twisted: it would cost each of them time and memory, and brings a reactor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: The modules that workers import: sources and the sink by name, everything else through them.
WORKERS = (
    "holdfast.pipeline.decoding.decode_function",
    "holdfast.pipeline.filters.matching",
    "holdfast.pipeline.sink.rows",
    "holdfast.pipeline.sink.writer",
    "holdfast.pipeline.sources.files",
    "holdfast.pipeline.sources.history",
    "holdfast.pipeline.sources.retained",
    "holdfast.pipeline.spark.shared_storage",
)


@pytest.mark.parametrize("module", WORKERS)
def test_a_module_of_the_workers_imports_no_twisted(module: str) -> None:
    code = f"import sys, {module}; print([name for name in sys.modules if name.split('.')[0] in ('twisted', 'zope')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_worker_opens_a_database_without_twisted(tmp_path: Path) -> None:
    """The module of either database, down to its reader."""
    code = (
        "import sys\nfrom holdfast.storage.database import Durability\n"
        "from holdfast.storage.engine import database_at\n"
        "import holdfast.storage.postgres.database\n"
        f"database_at('sqlite:///{tmp_path}/x.db', Durability.PROCESS, 0, 1.0)\n"
        "print('twisted' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
