"""The group ``holdfast db``."""

from __future__ import annotations

import click

from holdfast.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    locations={
        "backup": "holdfast.cli.database.commands:backup",
        "check": "holdfast.cli.database.commands:check",
        "upgrade": "holdfast.cli.database.commands:upgrade",
        "verify": "holdfast.cli.database.commands:verify",
    },
)
def db() -> None:
    """Upgrade, check and back up the broker's database.

    Run these commands as the broker's user, with the broker's options.
    """
