"""Values of Sparkplug B in a roll-up: one metric by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast_pipeline.decoding.catalog import read_catalog
from holdfast_pipeline.rollup import BadValue, Decoding, Value
from tests.pipeline.decoding.tahu import metric, payload

#: The numbers of datatypes.
INT8, UINT8, BOOLEAN, STRING, DATETIME = 1, 5, 11, 12, 13
SENT = 1_700_000_000_000
PUBLISHED = {"op": ChangeKind.SET.value, "origin": ChangeOrigin.PUBLISH.value, "changed_at": 0}
CATALOG = """
version = 1
[values.temperature]
pattern = "spBv1.0/{group}/DDATA/{node}/{device}"
format = "sparkplug"
metric = "temp"
time = "$.measured_at"
"""


@pytest.mark.parametrize(
    ("metrics", "found"),
    [
        ([metric("temp", datatype=INT8, integer=255), metric("other", integer=3)], [-1.0]),
        ([metric("temp", datatype=UINT8, integer=255)], [255.0]),
        ([metric("temp", integer=7), metric("temp", integer=8)], [7.0, 8.0]),
        ([metric("temp", number=21.5), metric(alias=7, integer=1)], [21.5]),
        ([metric("temp", datatype=BOOLEAN, flag=True)], [1.0]),
        ([metric("temp", datatype=INT8)], []),
        ([metric("other", integer=3)], []),
        ([], []),
        ([metric(alias=7, integer=1)], "a metric has the alias 7 and no name; a value by its metric needs names"),
        ([metric("temp", datatype=STRING, text="warm")], "the value is 'warm', which is no number"),
        ([metric("temp", datatype=DATETIME, integer=SENT)], "the metric is a time, which is no number"),
    ],
)
def test_a_metric_has_its_numbers_and_flags(tmp_path: Path, metrics: list[bytes], found: list[float] | str) -> None:
    """With their signs and times. A metric that may be the wanted one is told."""
    (tmp_path / "values.toml").write_text(CATALOG)
    sent = payload(*metrics, timestamp=SENT)
    change = {
        "op": ChangeKind.SET.value,
        "topic": "spBv1.0/g/DDATA/n/d",
        "payload": sent,
        "seq": 1,
        "revision": 1,
        **PUBLISHED,
    }
    values = list(Decoding(read_catalog(tmp_path / "values.toml")).values(change, {}))
    if isinstance(found, str):
        (bad,) = values
        assert isinstance(bad, BadValue)
        assert bad.reason == found
    else:
        assert [(each.at, each.value) for each in values if isinstance(each, Value)] == [
            (SENT * 1000, each) for each in found
        ]
        assert len(values) == len(found)
