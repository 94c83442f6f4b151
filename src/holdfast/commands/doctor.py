"""``holdfast doctor``: look for problems before they occur."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.common import broker_options, json_option, load_config, show, show_json
from holdfast.core.terminal import ExitStatus, counted

if TYPE_CHECKING:
    from holdfast.commands.examination import Finding
    from holdfast.config import Config


@click.command("doctor")
@broker_options
@click.option("--deep", is_flag=True, help="Also compare all retained messages with the history.")
@json_option
def doctor(config: Path | None, data_dir: str | None, storage: str | None, deep: bool, as_json: bool) -> None:
    """Find problems of the configuration and of this machine.

    Each finding has a remedy. A problem loses data, lets strangers in, or will stop the broker; advice is less urgent.
    Run this as the broker's user. The broker may run meanwhile.

    The exit status is 0 without problems, and 3 if there are some.
    """
    from holdfast.commands.cluster_examination import CLUSTER_CHECKS
    from holdfast.commands.examination import CHECKS, DEEP_CHECKS, OF_A_START, Weight, advice, examine, problem
    from holdfast.config import ConfigError

    findings: list[Finding] = []
    checks = [*CHECKS, *CLUSTER_CHECKS, *(DEEP_CHECKS if deep else ())]
    try:
        settings = load_config(config, data_dir, storage, allow_anonymous=False)
    except ConfigError as error:
        findings += [
            problem("configuration", str(each), "correct it; holdfast check-config FILE checks it alone")
            for each in error.problems
        ]
    else:
        runs, told = _ask(settings)
        findings += [advice("configuration", str(each), "remove the key") for each in settings.ignored]
        findings += [*told, *examine(settings, [check for check in checks if not (runs and check in OF_A_START)])]
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
        show(f"{len(checks)} checks: {counted(problems, 'problem')}, {len(findings) - problems} advice")
    raise SystemExit(ExitStatus.FOUND if problems else ExitStatus.DONE)


def _ask(settings: Config) -> tuple[bool, list[Finding]]:
    """Ask the broker. Return whether one runs, and the findings about it."""
    from holdfast.commands.access import BrokerClient
    from holdfast.commands.examination import late_listeners, problem
    from holdfast.commands.interfaces import Inaccessible

    broker = BrokerClient(settings)
    try:
        if not broker.answers():
            return False, []
        damage = broker.call("GET", "/info")["damage"]
        closed = broker.closed_listeners()
    except Inaccessible as error:
        return True, [problem("broker", str(error), "look at its log")]
    found = list(late_listeners(settings, closed))
    if damage is not None:
        found.append(problem("broker", f"it stores nothing any more: {damage}", "see docs/operator/faults.md"))
    return True, found
