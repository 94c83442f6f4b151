"""The schema of decoded rows: given by the decoder, written as Spark's DDL, or inferred from a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import StructType

from holdfast_pipeline.decoding.decoder import Decoder
from holdfast_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Longer payloads are not in a sample: all payloads of the sample come to one process at once.
_LONGEST_SAMPLED = 64 << 10


def schema_of(decoder: Decoder, frame: DataFrame, sample: int) -> StructType:
    """Return the schema of a decoder's rows, inferred from a sample if it has none. Raises :class:`PipelineError`."""
    if isinstance(decoder.schema, StructType):
        return decoder.schema
    if decoder.schema is not None:
        return parsed(decoder.schema)
    sampled = frame.where(F.octet_length("payload") <= _LONGEST_SAMPLED)
    # By the lowest hashes, so that the same messages give the same sample and the same schema again.
    chosen = sampled.orderBy(F.xxhash64("topic", "payload"), "topic").limit(sample).select("payload").collect()
    return inferred_by(decoder, [bytes(row.payload) for row in chosen])


def inferred_by(decoder: Decoder, sample: Sequence[bytes]) -> StructType:
    """Return the schema that a decoder infers. Raises :class:`PipelineError` if it fails."""
    try:
        return decoder.infer(sample)
    except Exception as error:  # - a decoder of another package may raise anything for an unexpected payload
        raise PipelineError(f"no schema could be inferred: {type(error).__name__}: {error}") from error


def parsed(text: str) -> StructType:
    """Return the schema that Spark's DDL describes. Raises :class:`PipelineError`."""
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        said = str(error).strip().splitlines()
        raise PipelineError(
            f"schema {text!r} is not understood ({said[0] if said else type(error).__name__}); "
            "write it as in: temperature double, unit string, tags array<string>"
        ) from error
    if not isinstance(found, StructType):
        raise PipelineError(f"schema {text!r} names no fields; write it as in: temperature double, unit string")
    return found


def ddl(schema: StructType) -> str:
    """Return a schema as Spark's DDL."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def quoted(name: str) -> str:
    """Return the name of a column in quotes: without them, a dot in it would mean a field of a struct."""
    return f"`{name.replace('`', '``')}`"
