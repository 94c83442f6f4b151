"""The names of files and folders in the folders that jobs write."""

from __future__ import annotations

#: The folder of the Parquet files.
DATA = "data"
#: A job writes this file last. A folder without it holds no complete result.
MANIFEST = "manifest.json"
