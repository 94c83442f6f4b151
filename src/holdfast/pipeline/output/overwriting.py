"""Where a job may write: to a folder that has nothing there, or what such a job has written, complete or cut short.

Spark removes what it overwrites with all that is in it. A folder named by mistake may be anybody's: a broker's, whose
database is in ``data`` too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.names import CHECKPOINT, COVERAGE, DATA

#: The file that says that what a job has written is complete.
MANIFEST = "manifest.json"
#: How the folders begin in which Spark writes days, before they replace those that are there.
UNFINISHED = ".spark-staging-"
#: What Spark writes: parts, and what it notes of them. Then the same by days.
_PARTS = re.compile(r"\.?(part-|_)")
_DAYS = re.compile(rf"\.?(date=|_)|{re.escape(UNFINISHED)}")


def require_overwritable(out: Folder, overwrite: bool, what: str = "result", names: Sequence[str] = (DATA,)) -> None:
    """Make sure that these folders in ``out`` can be written to, and may be replaced.

    Raises :class:`PipelineError` for what is complete and is to stay, for an archive, and for what no job has written.
    """
    if out.has(COVERAGE) or out.has(CHECKPOINT):
        raise PipelineError(f"{out.uri}: holds an archive of a history; name another folder")
    require_replaceable(out, *names)
    if out.has(MANIFEST) and not overwrite:
        raise PipelineError(f"{out.uri}: holds a complete {what}; name another folder, or say --overwrite")


def begin_overwriting(out: Folder, overwrite: bool, what: str = "result", names: Sequence[str] = (DATA,)) -> None:
    """Do the same, and note that from now on, what is there is not complete."""
    require_overwritable(out, overwrite, what, names)
    out.remove(MANIFEST)


def require_replaceable(out: Folder, *names: str) -> None:
    """Raise :class:`PipelineError` where these folders in ``out`` have anything but files that Spark has written."""
    out.require_writable()
    for name in names:
        _require(out, name, _PARTS)


def require_archive_target(out: Folder) -> None:
    """Raise :class:`PipelineError` unless an archive may begin in a folder, or one that was cut short may go on."""
    out.require_writable()
    if out.has(COVERAGE):
        raise PipelineError(f"{out.uri}: holds a compacted archive, which compact adds to; name another folder")
    if not out.has(CHECKPOINT):
        _require(out, DATA, None)


def require_compaction_target(out: Folder) -> None:
    """Raise :class:`PipelineError` unless the days of an archive may be compacted to a folder."""
    out.require_writable()
    if out.has(CHECKPOINT):
        raise PipelineError(f"{out.uri}: is an archive that is added to; name another folder")
    if not out.has(COVERAGE):
        _require(out, DATA, _DAYS)


def _require(out: Folder, name: str, ours: re.Pattern[str] | None) -> None:
    """Raise :class:`PipelineError` for what is in a folder and is not ours."""
    for other in sorted(out.names(name), key=lambda one: (one[:1] in "._", one)):  # what people see, first
        if ours is None or not ours.match(other):
            raise PipelineError(
                f"{out.below(name)}: has {other} in it, which would be lost or mixed up; name another folder"
            )
