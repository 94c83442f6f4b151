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
    """Look after the database of a broker. Run it as the broker's user, with the broker's options."""
