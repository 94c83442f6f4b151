"""Write a table as Parquet, JSON or lines of text, in place of all files in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.lines import LINE, csv_lines, ndjson_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The forms of retained messages that are lines of text, with the function that writes those of a task.
LINES = {"csv": csv_lines, "ndjson": ndjson_lines}
_TIMES = ("stored_at", "expires_at")


def write_files(frame: DataFrame, out: Folder, name: str, form: str = "parquet") -> None:
    """Write a table to the folder ``name``, as Parquet or as JSON, one object a line."""
    # "static" replaces the whole folder. With "dynamic", which the session may have set, other days would stay.
    writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.option("ignoreNullFields", "false").format(form).save(out.below(name))


def write_lines(messages: DataFrame, out: Folder, name: str, form: str) -> None:
    """Write retained messages to the folder ``name`` in a form of :data:`LINES`, in files that end in its name."""
    numbers = messages.withColumns({time: F.unix_millis(time) for time in _TIMES})
    write_files(numbers.mapInArrow(LINES[form], f"{LINE} string"), out, name, "text")
    for file in out.names(name):  # Spark's own writer of text knows one ending only
        if file.startswith("part-"):
            out.rename(f"{name}/{file}", f"{name}/{file.removesuffix('.txt')}.{form}")
        elif file.endswith(".crc"):  # the checksum of a file of the old name
            out.remove(f"{name}/{file}")
