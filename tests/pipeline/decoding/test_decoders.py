"""Decoders of other packages: the example in docs/pipeline/decode.md, and broken ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from holdfast_pipeline import snapshot_of
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.decoding import Decoder, messages
from holdfast_pipeline.decoding.formats import decoder_of
from holdfast_pipeline.decoding.messages import inferred_by
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.decode import decode
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.stores import Filled, message

PAGE = Path(__file__).parents[3] / "docs" / "pipeline" / "decode.md"
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package of one module, with its entry points."""

    def installed(module: str, source: str, points: str) -> None:
        site = tmp_path / "site"
        about = site / f"{module}-1.dist-info"
        about.mkdir(parents=True)
        (site / f"{module}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[holdfast.decoders]\n{points}\n")
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return installed


@contextmanager
def sent_whole(module: str) -> Iterator[None]:
    """Send the content of a module to the executors: usually the package would be installed there."""
    serializer: Any = cloudpickle
    serializer.register_pickle_by_value(sys.modules[module])
    try:
        yield
    finally:
        serializer.unregister_pickle_by_value(sys.modules[module])


def example(pattern: str) -> str:
    """Return an example of the page."""
    found = re.search(pattern, PAGE.read_text(), re.S)
    assert found
    return found[1]


@pytest.mark.spark
@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_the_decoder_in_the_page_is_a_format(
    spark: SparkSession, filled: Filled, tmp_path: Path, install: Install
) -> None:
    """By its entry point and as an object. Without a pattern, its own patterns count."""
    install("weather", example(r"```python\n(import struct.*?)```"), example(r"\n    (weather = [^\n]*)"))
    filled.put(
        message("weather/north/report", b"\x01\xff\x9c\x09\x60"), message("weather/south/report", b"\x02aabb"),
        message("weather/south/image", b"jpeg"),
    )  # fmt: skip
    decoder = decoder_of("weather")
    out = tmp_path / "out"
    with sent_whole("weather"):
        arguments = ["decode", "--storage", filled.url, "--format", "weather", "--out", str(out)]
        result = CliRunner().invoke(main, arguments)
        job = example(r"```python\n(from holdfast_pipeline import snapshot_of.*?)```")
        job = job.replace("sqlite:////var/lib/holdfast/holdfast.db", filled.url)
        done: dict[str, Any] = {"spark": spark, "Weather": sys.modules["weather"].Weather}
        exec(job.replace("/data/weather", str(tmp_path / "again")), done)
    decoder.held = Lock()  # type: ignore[attr-defined]
    with snapshot_of(filled.url) as snapshot, pytest.raises(PipelineError, match="cannot be sent to the executors"):
        decode(spark, messages.retained(spark, snapshot), decoder, Folder(str(tmp_path / "never")))
    assert (result.exit_code, result.stderr) == (3, "1 bad: version 2 is not known\n")
    assert done["done"].reasons == {"version 2 is not known": 1}
    for folder in (out, tmp_path / "again"):
        (row,) = spark.read.parquet(str(folder / "data")).collect()
        assert (row.station, row.temperature, row.battery, row.low) == ("north", -1.0, 2.4, False)


def test_a_missing_or_broken_format_is_explained(install: Install) -> None:
    install(
        "odd",
        "import struct\ndef no(): raise OSError('gone')\n",
        "bad = odd:missing\nraises = odd:no\nother = odd:struct.Struct",
    )
    install("second", "", "bad = second:Other")
    for name, reason in {
        "none": "no format 'none'; the formats are: avro, bad, json, number, other, protobuf, raises, sparkplug",
        "raises": "odd:no of odd failed: OSError: gone",
        "bad": "several packages have it: ",
        "other": "odd:struct.Struct of odd failed: TypeError",
    }.items():
        with pytest.raises(PipelineError, match=re.escape(reason)):
            decoder_of(name)
    install("third", "text = str", "text = third:text")
    with pytest.raises(PipelineError, match="third:text of third is not a "):
        decoder_of("text")


class Unfinished(Decoder):
    """A decoder without a schema and without infer()."""

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return nothing."""
        return []


def test_a_failed_inference_is_explained() -> None:
    with pytest.raises(PipelineError, match="Unfinished has neither a schema nor a way to infer one"):
        inferred_by(Unfinished(), [b"x"])


def test_the_built_in_formats_are_decoders() -> None:
    """Only json takes a schema."""
    assert all(isinstance(decoder_of(name), Decoder) for name in ("json", "number", "sparkplug"))
    assert decoder_of("json", "a int").schema == "a int"
    with pytest.raises(PipelineError, match="only json takes one"):
        decoder_of("number", "a int")
