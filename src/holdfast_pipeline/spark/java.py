"""Spark's Java, the options with which it starts in half the processor time, and the Python of its workers."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pyspark

# The folder for files that later commands use. Only the user may write to it: Java loads classes from there.


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the user's folder in an environment, made if it is not there; None if it cannot be used."""
    home = environment.get("HOME", "")
    folder = Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache"), "holdfast")
    if not folder.is_absolute() or '"' in str(folder):
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    others = stat.S_IWGRP | stat.S_IWOTH
    return None if found.st_uid != os.geteuid() or found.st_mode & others else folder


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


# Options with which Java starts Spark in half the processor time: an archive of Spark's classes, and cheap compilers.
#
# With an archive, Java maps checked classes into its memory, instead of reading and checking thousands of them. The
# first command makes Java write one when it ends, in the background, and the following ones use it::
#
#     ~/.cache/holdfast/4c2e91d07a55b3f6.731.new    written by the Java process of command 731
#     ~/.cache/holdfast/4c2e91d07a55b3f6.jsa        the same, taken by the next command
#
# The name tells the Java and the jars that it belongs to. Java checks that too, and the length of the file: it reads
# the classes as usual if anything differs.
#
# The optimising compiler begins after twenty times as many calls as usual. Before that, it costs a short command more
# than it brings; a long job has its hot loops compiled soon all the same. A command with a small input ends before
# that moment. So its Java has no optimising compiler, and the simple one makes code that counts no calls: a fifth of
# the time.
#
# A server has a collector of garbage that works at once and with all processors. Java's usual one works beside the
# jobs, for each of the server's many commands, which costs an eighth of their processor time.

_LATE_COMPILER = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 "
    "-XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
)
_NO_OPTIMISER = "-XX:TieredStopAtLevel=1"
_COLLECTOR = "-XX:+UseParallelGC"
#: A collector of the user's own. Java ends when it is told of a second one.
_OWN_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
#: Options of a user's own archive. Java ends when it is told of a second one.
_ARCHIVE_OPTIONS = ("SharedArchiveFile", "ArchiveClassesAtExit")
_OPTION_VARIABLES = (
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
)
#: Seconds after which a file is complete that nothing has written to.
_SETTLED = 5.0
#: Seconds after which an archive that no command has used is removed.
_FORGOTTEN = 30 * 86_400.0


def java_options(environment: Mapping[str, str], process: int, is_small: bool = False, is_server: bool = False) -> str:
    """Return Java's options for Spark in an environment. Java may write an archive in the name of a process (its id).

    With ``is_small``, they suit a command with a small input; with ``is_server``, a server. A user's own settings come
    behind these options, and win.
    """
    own = _own_options(environment)
    options = [_NO_OPTIMISER if is_small else _LATE_COMPILER]
    if is_server and not _OWN_COLLECTOR.search(own):
        options.append(_COLLECTOR)
    folder = None if any(option in own for option in _ARCHIVE_OPTIONS) else cache_folder(environment)
    name = _name(environment)
    if folder is not None and name is not None:
        archive = folder / f"{name}.jsa"
        _tidy(folder, archive)
        option = (
            f"SharedArchiveFile={archive}"
            if archive.exists()
            else f"ArchiveClassesAtExit={folder / name}.{process}.new"
        )
        # A refused archive would be logged on standard output.
        options.append(f'"-XX:{option}" -Xlog:disable')
    return " ".join(options)


def _own_options(environment: Mapping[str, str]) -> str:
    """Return all texts in which the user may have options for Java."""
    home = Path(environment.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    defaults = Path(environment.get("SPARK_CONF_DIR") or home / "conf", "spark-defaults.conf")
    texts = [environment.get(name, "") for name in _OPTION_VARIABLES]
    with suppress(OSError):  # then Spark has no such settings either
        texts.append(defaults.read_text(errors="replace"))
    return "\n".join(texts)


def _name(environment: Mapping[str, str]) -> str | None:
    """Return a name for this Java with these jars; None if one is missing."""
    java = java_in(environment)
    if java is None:
        return None
    jars = Path(environment.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
    try:
        facts = [f"{path} {path.stat().st_mtime_ns}" for path in (Path(java).resolve(), jars)]
    except OSError:
        return None
    return sha256(repr(facts).encode()).hexdigest()[:16]


def _tidy(folder: Path, archive: Path) -> None:
    """Take a complete new archive, and remove what nobody uses."""
    now = time.time()
    for path in (*folder.glob("*.new"), *folder.glob("*.jsa")):
        try:
            found = path.stat()
            if path.suffix == ".new" and path.name.startswith(archive.stem) and found.st_mtime < now - _SETTLED:
                if archive.exists() or not found.st_size:
                    path.unlink()
                else:
                    path.rename(archive)
            elif path == archive:
                os.utime(path)
            elif found.st_mtime < now - _FORGOTTEN:
                path.unlink()
        except OSError:  # another command was faster
            continue


# The Python that Spark starts for its workers on this host, so that they import PySpark in a fifth of the time.
#
# Spark puts a zip file of PySpark in front of the path of each process. A zip file has no compiled modules: each
# process compiles them again, for a second, and each task looks for changes in the zip file. The Python of the
# command has the same PySpark installed, with compiled modules. So Spark starts a program that takes the zip files
# from the path and becomes that Python.

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
