"""``holdfast config reference``: print every option of the configuration file."""

from __future__ import annotations

import click

from holdfast.config.reference import render_markdown, render_toml


@click.group()
def config() -> None:
    """Learn about the configuration file."""


@config.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["toml", "markdown"]),
    default="toml",
    show_default=True,
    help="toml: a file to start from. markdown: the page of the documentation.",
)
def reference(form: str) -> None:
    """Print every option with its default, its allowed values and its effect."""
    click.echo(render_toml() if form == "toml" else render_markdown(), nl=False)
