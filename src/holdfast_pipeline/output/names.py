"""The names of files and folders in the folders that jobs write."""

from __future__ import annotations

#: The folder of the Parquet files.
DATA = "data"
#: A job writes this file last. A folder without it holds no complete result.
MANIFEST = "manifest.json"
#: The file that says which part of the history an archive covers.
COVERAGE = "archive.json"
#: The checkpoint of the Spark stream that writes an archive. A compacted archive has none.
CHECKPOINT = "checkpoint"
