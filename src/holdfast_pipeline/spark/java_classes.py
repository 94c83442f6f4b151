"""Options with which Java starts Spark in half the processor time: an archive of Spark's classes, and cheap compilers.

With an archive, Java maps checked classes into its memory, instead of reading and checking thousands of them. The
first command makes Java write one when it ends, in the background, and the following ones use it::

    ~/.cache/holdfast/4c2e91d07a55b3f6.731.new    written by the Java process of command 731
    ~/.cache/holdfast/4c2e91d07a55b3f6.jsa        the same, taken by the next command

The name tells the Java and the jars that it belongs to. Java checks that too, and the length of the file: it reads the
classes as usual if anything differs.

The optimising compiler begins after twenty times as many calls as usual. Before that, it costs a short command more
than it brings; a long job has its hot loops compiled soon all the same. A command with a small input ends before that
moment. So its Java has no optimising compiler, and the simple one makes code that counts no calls: a fifth of the time.

A server has a collector of garbage that works at once and with all processors. Java's usual one works beside the jobs,
for each of the server's many commands, which costs an eighth of their processor time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pyspark

from holdfast_pipeline.cache_folder import cache_folder
from holdfast_pipeline.spark.java import java_in

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
