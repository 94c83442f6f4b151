"""The group ``holdfast db``."""

from __future__ import annotations

import click

from holdfast.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    locations={
        "backup": "holdfast.cli.database.backup:backup",
        "check": "holdfast.cli.database.maintenance:check",
        "upgrade": "holdfast.cli.database.maintenance:upgrade",
        "verify": "holdfast.cli.database.backup:verify",
    },
)
def db() -> None:
    """Look after the database of a broker. Run it as the broker's user, with the broker's options."""
