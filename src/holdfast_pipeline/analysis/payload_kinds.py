"""The kinds of payloads, as columns: Spark itself computes them, without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

if TYPE_CHECKING:
    from pyspark.sql import Column

BINARY, TEXT = "binary", "text"
#: the kinds of JSON values, by the first word of Spark's name for their type
_JSON = (
    ("OBJECT", "object"),
    ("ARRAY", "array"),
    ("BIGINT", "number"),
    ("DECIMAL", "number"),
    ("DOUBLE", "number"),
    ("FLOAT", "number"),
    ("BOOLEAN", "boolean"),
    ("STRING", "string"),
    ("VOID", "null"),
)
KINDS = (*dict.fromkeys(kind for _, kind in _JSON), TEXT, BINARY)


#: How each JSON text begins. For other texts, Spark's parser would make an exception, which takes much longer.
_BEGIN = r"\A[ \t\n\r]*(?:[\[{\"tfn]|-?(?:0(?![0-9])|[1-9]))"


def json_value(payload: Column) -> Column:
    """Return the payload as a VARIANT, NULL if it is not JSON. An object with a name twice is not."""
    text = payload.cast("string")
    return F.when(F.is_valid_utf8(text) & text.rlike(_BEGIN), F.try_parse_json(text))


def kind_of(payload: Column) -> Column:
    """Return the kind, one of :data:`KINDS`: that of a JSON value, else text (UTF-8) or binary."""
    text = F.when(F.is_valid_utf8(payload.cast("string")), F.lit(TEXT)).otherwise(F.lit(BINARY))
    return F.coalesce(json_kind(json_value(payload)), text)


def json_kind(value: Column) -> Column:
    """Return the kind of a JSON value, a VARIANT; NULL for NULL."""
    known = F.create_map(*(F.lit(text) for pair in _JSON for text in pair))
    # One reference to the value: it may be a long expression, and nested ones would multiply.
    return F.try_element_at(known, F.regexp_extract(F.schema_of_variant(value), r"\A[A-Z]*", 0))
