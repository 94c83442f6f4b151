"""``holdfast-pipeline sample``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from holdfast_pipeline.choices import SAMPLES
from holdfast_pipeline.cli.running import failing_in_one_line, print_result
from holdfast_pipeline.formatting import number


@click.command()
@click.argument("sample", type=click.Choice(SAMPLES))
@click.option("--out", help="The folder to write to: new, or empty.  [default: the name of the sample]")
@click.option("--seed", type=int, default=1, show_default=True, help="Another number puts the faults on other devices.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def sample(sample: str, out: str | None, seed: int, as_json: bool) -> None:
    """Write a database to try the pipeline with: the messages of a home or a plant, with known faults.

    It has the history of the last 24 hours. OUT/holdfast.toml is the configuration of a broker with this database, for
    --config of the other commands. OUT/faults.txt has the planted faults, as the command check should find them.
    Neither a broker nor Java is needed.
    """
    from attrs import asdict

    from holdfast_pipeline.sample.home import home
    from holdfast_pipeline.sample.plant import plant
    from holdfast_pipeline.sample.recording import write

    make = {"home": home, "plant": plant}[sample]
    with failing_in_one_line():
        written = write(make(seed, time.time_ns() // 1_000_000), Path(sample if out is None else out))
    sentence = (
        f"{number(written.topics)} topics with {number(written.changes)} changes, and {len(written.faults)} planted"
        f" faults: see {written.folder}/faults.txt. Go on with --config {written.config}"
    )
    print_result(asdict(written), as_json, sentence)
