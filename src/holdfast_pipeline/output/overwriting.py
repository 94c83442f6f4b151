"""The folders that a job may overwrite: empty ones, and those with the output of such a job, complete or interrupted.

Spark deletes a folder that it overwrites. A user may name a wrong folder, for example the broker's, whose database is
also in a folder ``data``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import CHECKPOINT, COVERAGE, DATA, MANIFEST

#: Prefix of the folders in which Spark writes days before it replaces the old ones.
UNFINISHED = ".spark-staging-"
#: Names of Spark's files, and of its folders by day.
_PARTS = re.compile(r"\.?(part-|_)")
_DAYS = re.compile(rf"\.?(date=|_)|{re.escape(UNFINISHED)}")


def require_overwritable(out: Folder, overwrite: bool, result: str = "result", names: Sequence[str] = (DATA,)) -> None:
    """Require that a job may overwrite these subfolders of ``out``.

    Raises :class:`PipelineError` for a complete result without ``overwrite``, for an archive, and for foreign files.
    """
    if out.has(COVERAGE) or out.has(CHECKPOINT):
        raise PipelineError(f"{out.uri}: holds an archive of a history; name another folder")
    require_replaceable(out, *names)
    if out.has(MANIFEST) and not overwrite:
        raise PipelineError(f"{out.uri}: holds a complete {result}; name another folder, or use --overwrite")


def begin_overwriting(out: Folder, overwrite: bool, result: str = "result", names: Sequence[str] = (DATA,)) -> None:
    """Require the same, then remove the manifest: from now on the content is incomplete."""
    require_overwritable(out, overwrite, result, names)
    out.remove(MANIFEST)


def require_replaceable(out: Folder, *names: str) -> None:
    """Raise :class:`PipelineError` if these subfolders of ``out`` have other files than Spark's."""
    out.require_writable()
    for name in names:
        _require(out, name, _PARTS)


def require_archive_target(out: Folder) -> None:
    """Raise :class:`PipelineError` unless a folder may hold a new archive, or holds one that may continue."""
    out.require_writable()
    if out.has(COVERAGE):
        raise PipelineError(f"{out.uri}: holds a compacted archive, to which only compact adds; name another folder")
    if not out.has(CHECKPOINT):
        _require(out, DATA, None)


def require_compaction_target(out: Folder) -> None:
    """Raise :class:`PipelineError` unless a folder may hold a compacted archive."""
    out.require_writable()
    if out.has(CHECKPOINT):
        raise PipelineError(f"{out.uri}: is an archive, to which archive adds; name another folder")
    if not out.has(COVERAGE):
        _require(out, DATA, _DAYS)


def _require(out: Folder, name: str, ours: re.Pattern[str] | None) -> None:
    """Raise :class:`PipelineError` if a name in a subfolder does not match ``ours``."""
    for other in sorted(out.names(name), key=lambda one: (one[:1] in "._", one)):  # visible names first
        if ours is None or not ours.match(other):
            raise PipelineError(
                f"{out.below(name)}: contains {other}, which would be lost or mixed up; name another folder"
            )
