"""The Python that Spark starts for its workers on this host, so that they import PySpark in a fifth of the time.

Spark puts a zip file of PySpark in front of the path of each process. A zip file has no compiled modules: each process
compiles them again, for a second, and each task looks for changes in the zip file. The Python of the command has the
same PySpark installed, with compiled modules. So Spark starts a program that takes the zip files from the path and
becomes that Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

_PROGRAM = Path(__file__).with_name("worker_python.sh")
#: Tells the program which Python it is.
_PYTHON = "HOLDFAST_PYTHON"
#: The variable with which a user chooses another Python.
_CHOICE = "PYSPARK_PYTHON"


def let_workers_find(environment: MutableMapping[str, str]) -> None:
    """Tell Java, which inherits this environment, about the Python of this process."""
    environment[_PYTHON] = sys.executable


def choose_worker_python(environment: MutableMapping[str, str], is_local: bool) -> None:
    """Have Spark use the Python of this process for workers, unless the user has chosen another.

    On other hosts, and with a Spark of the user's own, it is used as it is.
    """
    is_own = is_local and not environment.get("SPARK_HOME") and os.access(_PROGRAM, os.X_OK)
    environment.setdefault(_CHOICE, str(_PROGRAM) if is_own else sys.executable)
