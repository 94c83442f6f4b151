"""``sync`` to an object store: a server on this host speaks S3."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from deltalake import DeltaTable

from holdfast_pipeline import Source
from holdfast_pipeline.decoding.catalog import read_catalog
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.rollup import Rollup
from holdfast_pipeline.jobs.sync import Sync
from holdfast_pipeline.lake.iceberg_table import IcebergCatalog
from holdfast_pipeline.lake.upkeep import Upkeep
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources.lake import Lake
from tests.pipeline.lake.reading import expected, in_iceberg, in_tables
from tests.pipeline.stores import Filled, message

_SERVER = """
import time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1])
time.sleep(600)
"""
_CATALOG = """
version = 1

[values.number]
pattern = "a"
format = "number"
"""
_ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket, with the variables that name its server.

    The server is a process of its own: Delta's package lets no other thread run while it looks for a table.
    """
    server = subprocess.Popen([sys.executable, "-u", "-c", _SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for name, value in {**_ACCOUNT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="lake")
        yield "lake"
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_the_tables_may_be_in_a_bucket(recorded: Filled, bucket: str, tmp_path: Path) -> None:
    """Batches, merges, joined files and the vacuum, also of roll-ups; a foreign object in the folder is refused."""
    (tmp_path / "values.toml").write_text(_CATALOG)
    catalog = read_catalog(tmp_path / "values.toml")
    for step in range(2):
        recorded.put(message("a", b"%d" % step), message(f"b/{step}"))
        Sync(Source(recorded.url), Folder(f"s3a://{bucket}/house"), rows=2, upkeep=Upkeep(most_small=2, keep=0)).run()
        assert in_tables(f"s3://{bucket}/house") == expected(recorded)
        for out in ("house", "figures"):
            job = Rollup(
                Folder(f"s3://{bucket}/house"),
                Folder(f"s3a://{bucket}/{out}"),
                catalog,
                upkeep=Upkeep(most_small=2, keep=0),
            )
            assert job.run().values == 1
        table = DeltaTable(f"s3://{bucket}/figures/rollup_1d").to_pyarrow_table().to_pylist()
        assert [(row["topic"], row["count"], row["last"]) for row in table] == [("a", step + 1, float(step))]
    client = boto3.client("s3")
    client.put_object(Bucket=bucket, Key="other/changes/notes.txt", Body=b"")
    with pytest.raises(PipelineError, match=r"contains notes\.txt"):
        Sync(Source(recorded.url), Folder(f"s3://{bucket}/other"))


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_iceberg_tables_may_be_in_a_bucket_with_their_catalogue_elsewhere(
    recorded: Filled, bucket: str, tmp_path: Path
) -> None:
    """Batches, merges, joined files and the vacuum; the lake tells what it has without the catalogue."""
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    for step in range(3):
        recorded.put(message("a", b"%d" % step), message(f"b/{step}"))
        out = Folder(f"s3a://{bucket}/house")
        table = IcebergCatalog(out, catalog, "house").table
        Sync(Source(recorded.url), out, rows=2, upkeep=Upkeep(most_small=2, keep=0), table=table).run()
        assert in_iceberg(f"s3://{bucket}/house", catalog, "house") == expected(recorded)
    lake = Lake(f"s3a://{bucket}/house")
    assert (lake.rows("changes"), lake.rows("current")) == tuple(map(len, expected(recorded)))
