"""``holdfast-pipeline check``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.core.terminal import ExitStatus, printable
from holdfast_pipeline.choices import SEVERITY_NAMES
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.errors import PipelineError, WrongUsage
from holdfast_pipeline.formatting import counted, moment, visible

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast_pipeline.checks.rule_findings import CheckFinding, Compared, Identity

#: Findings of one rule that are printed. The others are counted; --json has all.
_LISTED = 12
_LONGEST = 300


@click.command()
@options.lake
@options.console
@click.option("--rules", "file", help="The TOML file of rules.")
@click.option("--no-discovery", is_flag=True, help="Look for nothing that has no rule.")
@click.option("--baseline", help="A file of findings that are known: they are counted, and do not fail.")
@click.option("--write-baseline", is_flag=True, help="Write the present findings to BASELINE.")
@click.option("--since", help="Judge only messages that have changed since a token of the last check, or since a time.")
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITY_NAMES),
    default="error",
    show_default=True,
    help="The exit status is 3 for findings of this severity or a worse one.",
)
@click.option("--junit", "junit_file", help="A file for the result as JUnit's XML.")
@options.snapshot_dir
def check(
    storage: str | None,
    config: str | None,
    lake: str | None,
    as_json: bool,
    file: str | None,
    no_discovery: bool,
    baseline: str | None,
    write_baseline: bool,
    since: str | None,
    fail_on: str,
    junit_file: str | None,
    snapshot_dir: str | None,
) -> None:
    """Find faults in the retained messages, also by rules.

    The exit status is 3 if there are findings of the severity FAIL_ON or a worse one that BASELINE does not have.
    """  # fmt: skip
    from pathlib import Path

    from holdfast_pipeline.checks.rule_findings import baseline_text, compared, junit
    from holdfast_pipeline.checks.rules import read_rules
    from holdfast_pipeline.jobs.check import check as run
    from holdfast_pipeline.spark import refuse_snapshot, shared_snapshot

    begun = time.monotonic()
    with running("check") as start:
        if write_baseline and baseline is None:
            raise WrongUsage("--write-baseline needs --baseline, the file to write")
        if write_baseline and since is not None:
            raise WrongUsage("--write-baseline and --since exclude each other: a baseline covers all messages")
        if file is None and (no_discovery or since is not None):
            raise WrongUsage("without --rules there is nothing to judge: --no-discovery and --since need it")
        rules = () if file is None else read_rules(Path(file))
        known = _known(baseline) if baseline is not None and not write_baseline else frozenset()
        for written in [junit_file, *([baseline] if write_baseline else [])]:
            _require_writable(written)
        is_small = options.require_readable(storage, config, lake)
        spark = start(is_small, lambda: refuse_snapshot(storage, config, snapshot_dir, lake))
        with shared_snapshot(spark, storage, config, snapshot_dir, lake) as snapshot:
            result = run(spark, snapshot, rules, since, discovers=not no_discovery)
        judged = {rule.name for rule in rules} - {*result.left_out, *result.incomplete} if since is None else set()
        if since is None and not no_discovery:
            judged.add("")
        said = compared(result.findings, known, judged)
        if write_baseline:
            assert baseline is not None
            _write(baseline, baseline_text(result.findings).encode())
        failing = SEVERITY_NAMES[: SEVERITY_NAMES.index(fail_on) + 1]
        if junit_file is not None:
            types = {rule.name: rule.type for rule in rules}
            document = junit(said, types, result.left_out, failing, time.monotonic() - begun)
            _write(junit_file, document)
    if not as_json:
        _print_findings(said)
    failed = not write_baseline and any(each.finding.severity in failing for each in said.new)
    content = {
        "taken_at": result.taken_at, "token": result.token, "messages": result.messages, "rules": result.rules,
        "left_out": list(result.left_out), "incomplete": list(result.incomplete),
        "findings": [_as_json(each, known=False) for each in said.new] + [_as_json(each, True) for each in said.known],
        "failed": failed,
        "gone": [dict(zip(("rule", "kind", "subject"), each, strict=True)) for each in said.gone],
    }  # fmt: skip
    about = (
        f"{_counts(said)} in {counted(result.messages, 'message')} by {counted(result.rules, 'rule')}"
        f" on {moment(result.taken_at)}"
    )
    if result.left_out:
        about += f"; {counted(len(result.left_out), 'rule')} left out, which need all messages"
    if write_baseline:
        about += f"; {baseline} has all of these findings now"
    if result.token is not None:
        about += f"; token {result.token}"
    print_result(content, as_json, about)
    if failed:
        raise SystemExit(ExitStatus.FOUND)


def _known(path: str) -> frozenset[Identity]:
    from pathlib import Path

    from holdfast_pipeline.checks.rule_findings import read_baseline

    try:
        return read_baseline(Path(path).read_bytes(), path)
    except FileNotFoundError as error:
        raise PipelineError(f"{path}: there is no such baseline; make it with --write-baseline") from error
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read ({error.strerror})") from error


def _place(path: str) -> Path:
    from pathlib import Path

    found = Path(path)
    if not path.strip() or found.is_dir():
        raise PipelineError(f"{path}: is a folder; name a file")
    return found


def _require_writable(path: str | None) -> None:
    from holdfast_pipeline.output.folder import Folder

    if path is not None:
        Folder(str(_place(path).parent)).require_writable()


def _write(path: str, data: bytes) -> None:
    from holdfast_pipeline.output.folder import Folder

    place = _place(path)
    Folder(str(place.parent)).write(place.name, data)


def _print_findings(said: Compared) -> None:
    """Print the new findings for people, and name the findings that are gone."""
    listed: dict[str, int] = {}
    for each in said.new:
        key = each.rule or each.finding.kind
        listed[key] = listed.get(key, 0) + 1
        if listed[key] <= _LISTED:
            for line in _lines(each):
                click.echo(printable(line))
    for key, count in listed.items():
        if count > _LISTED:
            click.echo(printable(f"{key}: {counted(count - _LISTED, 'more finding')}, see --json"))
    for rule, kind, subject in said.gone[:_LISTED]:
        click.echo(printable(f"gone     {rule or kind}  {visible(subject)}"))
    if len(said.gone) > _LISTED:
        click.echo(f"gone     {counted(len(said.gone) - _LISTED, 'more finding')}, see --json")


def _lines(each: CheckFinding) -> list[str]:
    found = each.finding
    name = f"{each.rule} ({found.kind})" if each.rule else found.kind
    lines = [f"{found.severity:8} {name}  {visible(found.subject)}", f"         {visible(found.evidence, _LONGEST)}"]
    if each.examples:
        lines += [f"           {visible(one.topic)}: {visible(one.value)}" for one in each.examples]
    else:
        lines += [f"           {visible(topic)}" for topic in found.topics]
    return [*lines, f"         {visible(found.advice, _LONGEST)}"]


def _counts(said: Compared) -> str:
    severities = [each.finding.severity for each in said.new]
    counts = [counted(severities.count(each), each) for each in SEVERITY_NAMES if each in severities]
    text = counted(len(severities), "finding") + (f" ({', '.join(counts)})" if counts else "")
    if said.known:
        text += f", {len(said.known)} known"
    if said.gone:
        text += f", {len(said.gone)} gone"
    return text


def _as_json(each: CheckFinding, known: bool) -> dict[str, Any]:
    found = each.finding
    return {
        "rule": each.rule, "severity": found.severity, "kind": found.kind, "subject": found.subject,
        "evidence": found.evidence, "advice": found.advice, "checked": each.checked, "failed": each.failed,
        "share": each.failed / each.checked if each.checked else 0.0,
        "examples": [{"topic": one.topic, "value": one.value} for one in each.examples]
        or [{"topic": topic, "value": ""} for topic in found.topics],
        "known": known,
    }  # fmt: skip
