"""Delta tables, with the package ``deltalake``: its errors in one line, and tables of existing files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder

_COLOURED_ARROW = re.compile(r"\s*\x1b\[[0-9;]*m↳\x1b\[0m")


def make_table(out: Folder, name: str) -> None:
    """Make a Delta table of the Parquet files in the folder ``name``. Raises :class:`PipelineError`."""
    uri = out.below(name)
    with explained(uri):
        delta_package().convert_to_deltalake(uri)


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn the errors of the package about the table at a URI into :class:`PipelineError`."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        text = _in_one_line(error)
        raise PipelineError(
            f"{uri}: another job has changed the table at the same time; run this one again (Delta reports: {text})"
        ) from error
    except (DeltaError, OSError) as error:
        raise PipelineError(f"{uri}: Delta reports: {_in_one_line(error)}") from error


def _in_one_line(error: Exception) -> str:
    """Return the text of an error without the lines and the colours in which Delta shows its causes."""
    return " ".join(_COLOURED_ARROW.sub(":", str(error)).split())


def delta_package() -> ModuleType:
    """Return the package ``deltalake``. Raises :class:`PipelineError` if it is not installed."""
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise PipelineError("deltalake is not installed; Delta tables need: pip install 'holdfast[delta]'") from error
    return deltalake
