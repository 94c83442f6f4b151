"""JSON: an object is a row, an array of objects is a row for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.pipeline.decoding.decoder import BadPayload, Decoder
from holdfast.pipeline.decoding.schema_inference import inferred

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class JsonDocuments(Decoder):
    """Payloads in JSON, with the fields that a schema asks for, or with all fields where there is none.

    Where the schema is inferred, a field that is not in it makes a payload bad rather than being lost.
    """

    def __init__(self, schema: str | StructType | None = None) -> None:
        self.schema = schema
        self.leaves_out = schema is not None

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the object, or the objects. Raises :class:`BadPayload`."""
        return objects(payload)

    def infer(self, sample: Sequence[bytes]) -> StructType:
        """Return the schema that all good payloads of a sample fit."""
        rows: list[Mapping[str, Any]] = []
        for payload in sample:
            try:
                rows += objects(payload)
            except BadPayload:
                continue  # It is decoded with the others, and told of then.
        return inferred(rows)


def objects(payload: bytes) -> list[Mapping[str, Any]]:
    """Return the objects in a payload. Raises :class:`BadPayload`."""
    try:
        found = json.loads(payload.decode(), parse_constant=_refused)
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
        raise BadPayload("this is JSON, but no object and no array of objects")
    return rows


def _refused(name: str) -> NoReturn:
    raise BadPayload(f"this is not JSON: it has no {name}")
