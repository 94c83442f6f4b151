"""``holdfast config reference``: print every option of the configuration file."""

from __future__ import annotations

import click

from holdfast.cli.reporting import show_json


@click.group()
def config() -> None:
    """Learn about the configuration file."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON, an object for each option.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["toml", "markdown"]),
    default="toml",
    show_default=True,
    help="toml: a file to start from. markdown: the page of the documentation.",
)
def reference(form: str, as_json: bool) -> None:
    """Print every option with its default, its allowed values and its effect."""
    from holdfast.config.reference import described_options, render_markdown, render_toml

    if as_json:
        for option in described_options():
            show_json(option)
        return
    click.echo(render_toml() if form == "toml" else render_markdown(), nl=False)
