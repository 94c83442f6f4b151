"""``holdfast reload``: put a changed configuration into effect in the running broker."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.broker_options import broker_options, load_config
from holdfast.cli.failures import Failed
from holdfast.cli.reporting import json_option, say, show, show_json
from holdfast.exit_status import ExitStatus


@click.command()
@broker_options
@json_option
def reload(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Reload the configuration of the running broker.

    The broker reads its configuration again, and all files that it names. Everything that can change while it runs
    takes effect at once, or nothing if there is a problem. The command prints the differences, and the options that
    need a restart. The broker reads the file that it was started with: --config and --data-dir only select the broker.

    The exit status is 0 if the configuration is in effect, 3 if there are problems and nothing was changed, and 1 if no
    broker runs.
    """
    from holdfast.access.reloading import reload_broker
    from holdfast.config import ConfigError
    from holdfast.config.problems import FileUnreadable
    from holdfast.reloading.outcome import lines

    try:
        loaded = load_config(config, data_dir, storage)
    except FileUnreadable as error:
        raise Failed(str(error)) from None
    except ConfigError as error:  # the broker would say the same
        outcome = {"problems": [str(problem) for problem in error.problems]}
    else:
        outcome = reload_broker(loaded)
    if as_json:
        show_json({name: value for name, value in outcome.items() if name not in ("code", "message")})
    else:
        for line in lines(outcome):
            (say if outcome["problems"] else show)(line)
    if outcome["problems"]:
        raise SystemExit(ExitStatus.FOUND)
