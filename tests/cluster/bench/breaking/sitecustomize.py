"""Is imported by each Python process that has this folder in its path: breaks the product as the environment says."""

import importlib.util
import os
import sys
from pathlib import Path

if os.environ.get("HOLDFAST_BENCH_BROKEN"):
    _spec = importlib.util.spec_from_file_location("bench_broken", Path(__file__).parents[1] / "broken.py")
    assert _spec is not None
    assert _spec.loader is not None
    _broken = importlib.util.module_from_spec(_spec)
    sys.modules["bench_broken"] = _broken
    _spec.loader.exec_module(_broken)
    _broken.install(os.environ["HOLDFAST_BENCH_BROKEN"])
