"""Write a table as Parquet or JSON files, and then the manifest that makes it complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import DATA, MANIFEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_table(frame: DataFrame, out: Folder, form: str, about: Mapping[str, object]) -> None:
    """Write a table to the folder ``data``, and then the manifest with the facts ``about`` it.

    ``form`` is one of ``TABLE_FORMS``; JSON is one object per line. Raises :class:`PipelineError`.
    """
    write_files(frame, out, DATA, form)
    out.write_json(MANIFEST, about)


def write_files(frame: DataFrame, out: Folder, name: str, form: str = "parquet") -> None:
    """Write a table to the folder ``name``, in place of all files there."""
    # "static" replaces the whole folder. With "dynamic", which the session may have set, other days would stay.
    writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.option("ignoreNullFields", "false").format(form).save(out.below(name))
