"""The decoder of JSON: an object is one row, an array of objects is a row for each object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.pipeline.decoding.decoder import BadPayload, Decoder
from holdfast.pipeline.decoding.schema_inference import inferred

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class JsonDocuments(Decoder):
    """Decodes JSON to the fields of a given schema, or to all fields if the schema is inferred.

    A given schema chooses fields, so others are left out. With an inferred schema, an unknown field makes the payload
    bad: otherwise the field would be lost without notice.
    """

    def __init__(self, schema: str | StructType | None = None) -> None:
        self.schema = schema
        self.leaves_out = schema is not None

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the objects in the payload. Raises :class:`BadPayload`."""
        return objects(payload)

    def infer(self, sample: Sequence[bytes]) -> StructType:
        """Return a schema that fits all good payloads of a sample."""
        rows: list[Mapping[str, Any]] = []
        for payload in sample:
            try:
                rows += objects(payload)
            except BadPayload:
                continue  # It is a bad payload again when it is decoded.
        return inferred(rows)


def objects(payload: bytes) -> list[Mapping[str, Any]]:
    """Return the objects in a payload. Raises :class:`BadPayload`."""
    try:
        found = json.loads(payload.decode(), parse_constant=_reject_constant)
    except UnicodeDecodeError as error:
        raise BadPayload("this is not text in UTF-8") from error
    except BadPayload:
        raise
    except RecursionError as error:
        raise BadPayload("this is nested too deeply") from error
    except ValueError as error:
        raise BadPayload(f"this is not JSON: {error}") from error
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise BadPayload("this is JSON, but neither an object nor an array of objects")
    return rows


def _reject_constant(name: str) -> NoReturn:
    raise BadPayload(f"this is not JSON: JSON has no {name}")
