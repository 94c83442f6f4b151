"""The breaks of the bench: each replaces a function that is there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cluster.bench.broken import BREAKS, environment_of
from tests.processes import unmeasured


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_a_break_breaks_something(name: str) -> None:
    """The process that imports the module says so; without the name in the environment it does not."""
    chosen = BREAKS[name]
    command = (sys.executable, "-c", f"import {chosen.module}")
    broken = subprocess.run(
        command, env={**unmeasured(), **environment_of(name)}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert broken.stdout == f"BROKEN: {chosen.what}\n", broken.stderr
    whole = subprocess.run(
        command, env={**os.environ, **environment_of(None)}, capture_output=True, text=True, check=True
    )
    assert whole.stdout == ""
