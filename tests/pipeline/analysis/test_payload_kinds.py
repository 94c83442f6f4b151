"""Which payloads are JSON is what Spark's parser says, also for those that are not given to it."""

from __future__ import annotations

from itertools import product

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.messages import json_value

pytestmark = pytest.mark.spark

_SPACES = ("", " ", "\t\n\r ", "\v", "\f", "\u00a0", "\ufeff", "\u2028", "\x00")
_SIGNS = ("", "-", "+", "--", "- ")
_VALUES = (
    "", "0", "00", "01", "0.5", "0e1", ".5", "1", "12", "1e400", "0x1", "9" * 60, "1.", "1x", "true", "false", "null",
    "True", "NULL", "nul", "nan", "NaN", "Infinity", "-Infinity", "on", "{}", '{"a": 1}', "{a: 1}", "{'a': 1}", "[]",
    "[1", '"text"', "'text'", "`", "/* note */ 1", "// note\n1", "# note\n1", "\N{ARABIC-INDIC DIGIT ONE}", ",", ":",
)  # fmt: skip


def test_a_payload_is_json_if_the_parser_takes_it(spark: SparkSession) -> None:
    """All beginnings: each character up to U+017F, and spaces, signs and values of JSON and of what resembles it."""
    texts = {space + sign + value for space, sign, value in product(_SPACES, _SIGNS, _VALUES)}
    texts |= {chr(number) + value for number, value in product(range(0x180), ("", "0", "1]", '"'))}
    payload = F.encode(F.col("text"), "utf-8")
    frame = spark.createDataFrame([(text,) for text in sorted(texts)], "text string").select(
        "text", json_value(payload).isNotNull().alias("found"), F.try_parse_json("text").isNotNull().alias("parsed")
    )
    wrong = [row.text for row in frame.where("found != parsed").collect()]
    assert not wrong
    assert frame.where("parsed").count() > 50
