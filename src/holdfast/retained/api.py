"""What the pipeline uses of retained messages: rows, fields, records, lines, staging of imports, and foreign formats.

Imports no Twisted, since Spark's workers import it.
"""

from __future__ import annotations

from holdfast.core.messages import RetainedMessage
from holdfast.retained.fields import BadRecord
from holdfast.retained.formats import emqx, emqx_archive, mosquitto_db, mosquitto_dump, mosquitto_sqlite, ndjson
from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from holdfast.retained.import_jobs import LONGEST_NAME, Job, read_job
from holdfast.retained.limits import FlowSettings, flow_of
from holdfast.retained.records import csv_line_of, header, line_of, properties_in
from holdfast.retained.staging import StagingArea, StagingUnusable, row_of_fields, staging_area_for, sweep
from holdfast.retained.store.rows import Row
from holdfast.retained.store.wildcards import GLOB, LIKE, KeyRange, plan
from holdfast.retained.verdicts import Merge
from holdfast.wire.properties import NO_PROPERTIES, Properties

__all__ = [
    "GLOB",
    "LIKE",
    "LONGEST_NAME",
    "NO_PROPERTIES",
    "BadRecord",
    "FileEntry",
    "FlowSettings",
    "Job",
    "KeyRange",
    "Merge",
    "Properties",
    "RetainedMessage",
    "Row",
    "StagingArea",
    "StagingUnusable",
    "UnreadableFile",
    "csv_line_of",
    "emqx",
    "emqx_archive",
    "flow_of",
    "header",
    "line_of",
    "mosquitto_db",
    "mosquitto_dump",
    "mosquitto_sqlite",
    "ndjson",
    "plan",
    "properties_in",
    "read_job",
    "row_of_fields",
    "staging_area_for",
    "sweep",
]
