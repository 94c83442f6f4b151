"""The function that executors call for each message: it returns the rows in the types of the schema, or a reason."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from holdfast_pipeline.decoding.decoder import BadPayload, Decoder
from holdfast_pipeline.decoding.field_values import Convert, row_of
from holdfast_pipeline.formatting import visible

#: The most rows of one message.
MOST_ROWS = 100_000
_LONGEST_REASON = 300


class DecodeFunction:
    """Decodes one message at a time, with a decoder and the schema of its rows.

    Raises :class:`holdfast_pipeline.errors.PipelineError` for a schema with a type that is not supported.
    """

    def __init__(self, decoder: Decoder, schema: StructType) -> None:
        self._decoder = decoder
        self._schema = schema
        self._row = self._made()

    def __call__(self, topic: str, payload: bytes) -> tuple[list[Any] | None, str | None]:
        """Return the rows, or None and the reason against the payload."""
        try:
            rows = [self._row(row) for row in islice(self._decoder.decode(topic, bytes(payload)), MOST_ROWS + 1)]
        except BadPayload as error:
            return None, visible(str(error), _LONGEST_REASON)
        except Exception as error:  # noqa: BLE001 - one payload must not end the job
            return None, visible(f"the decoder failed: {type(error).__name__}: {error}", _LONGEST_REASON)
        if len(rows) > MOST_ROWS:
            return None, f"it has more than {MOST_ROWS} rows"
        return rows, None

    @property
    def result(self) -> StructType:
        """The type of the result, for Spark."""
        return StructType(
            [StructField("rows", ArrayType(relaxed(self._schema))), StructField("reason", StringType())]
        )  # fmt: skip

    def _made(self) -> Convert:
        return row_of(self._schema, self._decoder.leaves_out)

    def __getstate__(self) -> dict[str, Any]:
        # The converters are local functions, which cannot be pickled: each executor makes its own.
        return {"_decoder": self._decoder, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._row = self._made()


def relaxed(schema: StructType) -> StructType:
    """Return the schema with nullable fields. Payloads without a NOT NULL field are bad before Spark sees a row."""
    return StructType([StructField(field.name, field.dataType) for field in schema.fields])
