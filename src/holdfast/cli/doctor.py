"""``holdfast doctor``: look for problems before they occur."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.broker_options import broker_options, load_config
from holdfast.cli.reporting import json_option, show, show_json
from holdfast.exit_status import ExitStatus


@click.command("doctor")
@broker_options
@json_option
def doctor(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Find problems of the configuration and of this machine.

    Each finding has a remedy. A problem loses data, lets strangers in, or will stop the broker; advice is less urgent.
    Run this as the broker's user. The broker may run meanwhile.

    The exit status is 0 without problems, and 3 if there are some.
    """
    from holdfast.config import ConfigError
    from holdfast.doctor.examination import CHECKS, examine
    from holdfast.doctor.finding import Finding, Weight, problem

    findings: list[Finding] = []
    try:
        settings = load_config(config, data_dir, storage, allow_anonymous=False)
    except ConfigError as error:
        findings += [
            problem("configuration", str(each), "correct it; holdfast check-config FILE checks it alone")
            for each in error.problems
        ]
    else:
        findings += examine(settings)
    problems = sum(finding.weight is Weight.PROBLEM for finding in findings)
    if as_json:
        show_json(
            {
                "problems": problems,
                "findings": [
                    {"weight": one.weight.value, "subject": one.subject, "message": one.message, "remedy": one.remedy}
                    for one in findings
                ],
            }
        )
    else:
        for finding in sorted(findings, key=lambda one: one.weight is not Weight.PROBLEM):
            show(str(finding))
        show(f"{len(CHECKS)} checks: {_number(problems, 'problem')}, {len(findings) - problems} advice")
    raise SystemExit(ExitStatus.FOUND if problems else ExitStatus.DONE)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
