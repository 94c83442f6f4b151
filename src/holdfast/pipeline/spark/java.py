"""The Java that Spark would run, and what is wrong with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: The oldest release that Spark takes.
LEAST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
#: Seconds it may take to say its version.
_PATIENCE = 30.0
_REMEDY = f"Spark needs Java {LEAST} or newer: install openjdk-{LEAST}-jre-headless, or set JAVA_HOME to where it is"


def java_problem(environment: Mapping[str, str]) -> str | None:
    """Return what is wrong with the Java that an environment leads to, and what to do; None where nothing is."""
    home = environment.get("JAVA_HOME")
    if home:
        java, where = str(Path(home) / "bin" / "java"), f"JAVA_HOME is {home}"
        if shutil.which(java) is None:
            return f"{where}, where no bin/java is; {_REMEDY}"
    else:
        found = shutil.which("java", path=environment.get("PATH"))
        if found is None:
            return f"there is no java in PATH; {_REMEDY}"
        java = where = found
    said = _said(java, environment)
    match = _VERSION.search(said)
    if match is None:
        return f"{where}, which does not say its version ({said.strip()[:100]!r}); {_REMEDY}"
    return f"{where}, which is Java {match[1]}; {_REMEDY}" if int(match[1]) < LEAST else None


def _said(java: str, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the java that Spark would run
            [java, "-version"], env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False, timeout=_PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr + done.stdout
