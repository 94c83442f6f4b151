"""Writing a table that a job has made: Parquet or JSON files, and a manifest that says when they are complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.names import DATA, MANIFEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMS = ("parquet", "json")


def write(frame: DataFrame, out: Folder, form: str, about: Mapping[str, object]) -> None:
    """Write a table to the folder ``data``, and then the manifest with what there is to say ``about`` it.

    ``form`` is one of :data:`FORMS`; JSON is one object a line. Raises :class:`PipelineError`.
    """
    writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.option("ignoreNullFields", "false").format(form).save(out.below(DATA))
    out.write_json(MANIFEST, about)
