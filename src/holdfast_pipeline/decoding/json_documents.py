"""The decoder of JSON: an object is one row, an array of objects is a row for each object."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast_pipeline.decoding.decoder import BadPayload, Decoder
from holdfast_pipeline.decoding.schema_inference import inferred
from holdfast_pipeline.formatting import visible

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
        found = json.loads(
            payload.decode(), parse_constant=_reject_constant, parse_float=_finite, object_pairs_hook=_object
        )
    except UnicodeDecodeError as error:
        raise BadPayload("this is not text in UTF-8") from error
    except BadPayload:
        raise
    except RecursionError as error:
        raise BadPayload("this is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise BadPayload(f"this is not JSON: {error}") from error
    except ValueError as error:  # Python's bound for integers
        raise BadPayload("a number has too many digits") from error
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise BadPayload("this is JSON, but neither an object nor an array of objects")
    return rows


def _reject_constant(name: str) -> NoReturn:
    raise BadPayload(f"this is not JSON: JSON has no {name}")


def _finite(text: str) -> float:
    """Return a number; JSON allows numbers that no type of a table can hold."""
    found = float(text)
    if isinf(found):
        raise BadPayload(f"the number {visible(text, 60)} is too large for 64 bits")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Of equal names, other readers of JSON choose different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadPayload(f"the field '{visible(twice, 60)}' occurs twice in one object")
    return found
