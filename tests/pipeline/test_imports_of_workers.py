"""Spark's workers import little: no Twisted, which would cost each of them time and memory, and brings a reactor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: The modules that workers import: sources and the sink by name, everything else through them.
WORKERS = (
    "holdfast_pipeline.decoding.typed_rows",
    "holdfast_pipeline.filters",
    "holdfast_pipeline.sink",
    "holdfast_pipeline.sink",
    "holdfast_pipeline.sources.files",
    "holdfast_pipeline.sources.history",
    "holdfast_pipeline.sources.retained",
    "holdfast_pipeline.spark.session",
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
        "from holdfast.storage.maintenance import database_at\n"
        "import holdfast.storage.postgres\n"
        f"database_at('sqlite:///{tmp_path}/x.db', Durability.PROCESS, 0, 1.0)\n"
        "print('twisted' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("module", ["holdfast_pipeline.sources.history", "holdfast_pipeline.sources.retained"])
def test_a_worker_reads_a_file_without_sqlalchemy_and_the_configuration(module: str, tmp_path: Path) -> None:
    """They would take each worker half a second."""
    code = (
        f"import sys, {module}\n"
        "from holdfast_pipeline.database import Source, check\n"
        "from holdfast_pipeline.errors import PipelineError\n"
        "from holdfast_pipeline.sources.options import Options\n"
        f"url = Options('x', {{'storage': 'sqlite:///{tmp_path}/x.db', 'at': '1764030000000'}}, ('at',)).url()\n"
        "assert Source(url).is_sqlite\n"
        "try:\n    check(url)\nexcept PipelineError:\n    pass\n"
        "print([name for name in ('sqlalchemy', 'holdfast.config') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
