"""What commands and jobs share, known without Spark for ``--help``: values of options, their defaults, names of files.

The jobs take them from here.
"""

from __future__ import annotations

#: The decoders that the pipeline brings.
DECODERS = ("json", "number", "sparkplug", "avro", "protobuf")
#: Those whose payloads need no schema from a file: options can name them. The others are for a catalogue.
WITHOUT_SCHEMAS = DECODERS[:3]
#: The number of messages from which a schema is inferred.
SAMPLE = 1000
#: The samples that ``sample`` writes.
SAMPLES = ("home", "plant")
#: The severities of findings, the worst first.
SEVERITY_NAMES = ("error", "warning", "note")
#: The parts that ``report`` prints by themselves.
REPORT_PARTS = ("tree", "shapes", "filters")
#: The formats of retained messages that a job writes.
STATE_FORMS = ("parquet", "delta", "iceberg", "csv", "ndjson")
#: The formats of the tables that a job writes once, and of those that ``sync`` keeps; the first one is the default.
TABLE_FORMS = ("parquet", "delta", "iceberg")
LAKE_FORMS = ("delta", "iceberg")
#: The namespace of the tables of ``sync`` in a catalogue of Iceberg.
NAMESPACE = "holdfast"
#: The orders of the rows of the tree, and their columns; the highest value comes first.
TREE_ORDERS = {
    "messages": "messages",
    "bytes": "bytes",
    "age": "median_age",
    "expiring": "expiring",
}
#: The number of shapes with a page of their own in a report.
PAGES = 200
#: The rules of an import for topics that the database knows; the first one is the default.
MERGE_RULES = ("newer", "replace", "keep")
#: The formats of files that an import reads, besides Parquet.
FILE_FORMATS = ("ndjson", "emqx", "emqx-archive", "mosquitto", "mosquitto-dump", "mosquitto-sqlite")
#: The number of rejected messages with which an import is still done, and the highest number that may be allowed: the
#: driver keeps rejects in memory until the merge is complete.
IMPORT_MAX_REJECTS = 100
MOST_REJECTS = 100_000
#: The file of rejects, with a JSON object in each line.
REJECTS = "rejects.jsonl"


# The names of files and folders in the folders that jobs write.

#: The folder of the Parquet files.
DATA = "data"
#: A job writes this file last. A folder without it holds no complete result.
MANIFEST = "manifest.json"
