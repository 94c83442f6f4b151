"""The command ``holdfast-pipeline`` and its subcommands."""

from __future__ import annotations

import click

from holdfast.pipeline.cli.archive import archive
from holdfast.pipeline.cli.asof import asof
from holdfast.pipeline.cli.audit import audit
from holdfast.pipeline.cli.compact import compact
from holdfast.pipeline.cli.decode import decode
from holdfast.pipeline.cli.export import export
from holdfast.pipeline.cli.filters import filters
from holdfast.pipeline.cli.imports import import_
from holdfast.pipeline.cli.publish import publish
from holdfast.pipeline.cli.report import report
from holdfast.pipeline.cli.tree import tree


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdfast", prog_name="holdfast-pipeline", message="%(prog)s %(version)s")
def main() -> None:
    """Work with retained messages and their history in Apache Spark.

    Spark runs where its own settings say (spark-submit, spark-defaults.conf, MASTER, SPARK_REMOTE); by default here.

    The exit status is 0 when all is done, 1 when it failed, 2 for a wrong command line, and 3 when it is done and
    found what needs to be looked into: rejected rows, or differences.
    """


for command in (archive, asof, audit, compact, decode, export, filters, import_, publish, report, tree):
    main.add_command(command)
