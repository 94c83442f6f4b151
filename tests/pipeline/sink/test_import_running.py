"""An import through a running broker on either database, named by its configuration file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from holdfast.retained.records import line_of
from holdfast_pipeline.cli.root import main
from tests.paho import PahoClient
from tests.pipeline.stores import MAKES, message
from tests.postgres import drop, empty_database
from tests.processes import BrokerProcess

COUNT = 700


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("make", MAKES)
def test_present_subscribers_get_nothing_and_new_subscribers_get_everything(
    spark: SparkSession,
    tmp_path: Path,
    make: str,
) -> None:
    """Messages published later than the imported ones stay. New subscribers get each message once."""
    url = empty_database() if make == "postgresql" else f"sqlite:///{tmp_path / 'data' / 'holdfast.db'}"
    configuration, source = tmp_path / "holdfast.toml", tmp_path / "in.ndjson"
    configuration.write_text(f'[node]\ndata_dir = "{tmp_path / "data"}"\n[storage]\nurl = "{url}"\n')
    imported = {f"t/{number:03}": b"%d" % number for number in range(COUNT)}
    source.write_bytes(b"".join(line_of(message(topic, payload, qos=1)) for topic, payload in imported.items()))
    broker = BrokerProcess(tmp_path, "--config", str(configuration)).start()
    try:
        live = PahoClient(broker.port, 5)
        live.subscribe("#", qos=1)
        live.publish("t/000", b"live", qos=1, retain=True)
        assert live.next_message().payload == b"live"
        arguments = ["import", str(source), "--format", "ndjson", "--config", str(configuration), "--json"]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout.splitlines()[-1])
        assert (told["imported"], told["kept"], told["rejected"]) == (COUNT - 1, 1, 0)
        assert live.quiet()
        late = PahoClient(broker.port, 5)
        late.subscribe("#", qos=1)
        found = [late.next_message() for _ in range(COUNT)]
        assert late.quiet()
        assert {one.topic: one.payload for one in found} == {**imported, "t/000": b"live"}
        assert {(one.qos, one.retain) for one in found} == {(1, True)}
    finally:
        broker.end()
        if make == "postgresql":
            drop(url)
