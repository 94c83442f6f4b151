"""The folders that a job may overwrite: empty ones, and those with the output of such a job, complete or interrupted.

Spark deletes a folder that it overwrites. A user may name a wrong folder, for example the broker's, whose database is
also in a folder ``data``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import DATA, MANIFEST

#: Names of Spark's files, and of Delta's log beside them.
_PARTS = re.compile(r"\.?(part-|_)")


def require_overwritable(out: Folder, overwrite: bool, result: str = "result", names: Sequence[str] = (DATA,)) -> None:
    """Require that a job may overwrite these subfolders of ``out``.

    Raises :class:`PipelineError` for a complete result without ``overwrite``, and for foreign files.
    """
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
        for other in sorted(out.names(name), key=lambda one: (one[:1] in "._", one)):  # visible names first
            if not _PARTS.match(other):
                raise PipelineError(
                    f"{out.below(name)}: contains {other}, which would be lost or mixed up; name another folder"
                )
