"""The Java that Spark would run, and the problem with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: The oldest release that Spark supports.
_OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT = 30.0
_REMEDY = f"Spark needs Java {_OLDEST} or newer: install openjdk-{_OLDEST}-jre-headless, or set JAVA_HOME to it"


def java_problem(environment: Mapping[str, str]) -> str | None:
    """Return the problem with the Java that Spark would run in an environment, and the remedy; None if it is usable."""
    home = environment.get("JAVA_HOME")
    java = java_in(environment)
    if java is None:
        return f"JAVA_HOME is {home}, which has no bin/java; {_REMEDY}" if home else f"PATH has no java; {_REMEDY}"
    where = f"JAVA_HOME is {home}" if home else java
    output = _output(java, environment)
    match = _VERSION.search(output)
    if match is None:
        return f"{where}, which does not tell its version ({output.strip()[:100]!r}); {_REMEDY}"
    return f"{where}, which is Java {match[1]}; {_REMEDY}" if int(match[1]) < _OLDEST else None


def java_in(environment: Mapping[str, str]) -> str | None:
    """Return the path of the Java that Spark would run, None if there is none."""
    home = environment.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java", path=environment.get("PATH"))


def _output(java: str, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - Spark would run the same program
            [java, "-version"], env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False, timeout=_TIMEOUT,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr + done.stdout
