"""The API does what /openapi.json says: schemathesis asks a real broker with valid and invalid values, and compares."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.e2e import openapi_hooks
from tests.e2e.openapi_hooks import OWN_KEY
from tests.processes import PATIENCE, BrokerProcess, unmeasured

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
#: wrong keys among the calls would otherwise delay the answers
CONFIGURATION = "[failed_logins]\nenable = false\n[retainer.history]\nenable = true\n"
#: Calls whose bodies are of types that the tool cannot make, and answers without an end.
LEFT_OUT = "/(import|merge|events)$"


#: a trace lasts for a second at least
SLOW = "/(import|merge|events|trace)$"


@pytest.mark.parametrize("seconds", ["20", pytest.param("900", marks=pytest.mark.nightly)])
def test_every_call_keeps_to_its_description(tmp_path: Path, seconds: str) -> None:
    """Reads and writes, with a fixed seed. No answer is a fault of the broker, or another than the one described.

    The time is enough for the usual and the extreme values of each call; at night, for random ones, too.
    """
    (tmp_path / "h.toml").write_text(CONFIGURATION)
    broker = BrokerProcess(tmp_path, "--config", "h.toml", admin="tcp:0:interface=127.0.0.1").start()
    try:
        url = broker.wait_for("^admin http").split()[1]
        added = subprocess.run(
            [BIN / "holdfast", "api-key", "add", OWN_KEY, "--scope", "admin", "--data-dir", "data", "--json"],
            cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True, env=unmeasured(),
        )  # fmt: skip
        bearer = json.loads(added.stdout)["bearer"]
        hooks = {"SCHEMATHESIS_HOOKS": openapi_hooks.__name__, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", f"{url}openapi.json",
                "--header", f"Authorization: Bearer {bearer}",
                "--exclude-path-regex", LEFT_OUT if int(seconds) > 100 else SLOW,
                # Many valid texts are no Topic Filters, times or rules, which a schema cannot say.
                "--exclude-checks", "positive_data_acceptance",
                "--generation-with-security-parameters", "false", "--generation-database", "none",
                "--phases", "coverage,fuzzing", "--max-examples", "3", "--seed", "1", "--no-shrink", "--no-color",
                "--continue-on-failure", "--max-time", seconds, "--warnings", "off",
            ],
            cwd=tmp_path, capture_output=True, text=True, timeout=10 * PATIENCE + int(seconds), check=False,
            env=unmeasured() | hooks,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        # The key is still valid: else all calls would have got 401, which every description allows.
        request = urllib.request.Request(f"{url}api/v5/nodes", headers={"Authorization": f"Bearer {bearer}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert answer.status == 200
        status, errors = broker.stop()
    finally:
        broker.end()
    assert (status, "Traceback" in errors) == (0, False)
