"""What the pages show exists: commands with their options, configurations, links, and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import click
import pytest

from holdfast.commands import main
from holdfast.config import load
from holdfast.tap import Options
from holdfast_pipeline.checks.rules import read_rules
from holdfast_pipeline.cli.job_file import read_jobs
from holdfast_pipeline.cli.root import main as pipeline
from holdfast_pipeline.decoding.catalog import read_catalog
from tests.docs.pages import PAGES, ROOT, anchors, blocks, commands, links, words_of
from tests.pipeline.rollup.schemas import write_schemas

PROGRAMS = {"holdfast": main, "holdfast-pipeline": pipeline}
#: Pages whose TOML is a catalogue of values, or rules of check; on all other pages it is a broker's configuration.
CATALOGUES, RULES, JOBS = ("pipeline/decode.md", "pipeline/rollup.md"), ("pipeline/check.md",), ("pipeline/run.md",)
BY_NAME = {page.relative_to(page.parents[1]).as_posix(): page for page in PAGES}


def known_options(words: list[str]) -> set[str]:
    """Return the options of the command that words call."""
    if words[:2] == ["holdfast", "run"]:
        return {f"--{name.rstrip('=')}" for name in Options().longOpt}
    command: click.Command = PROGRAMS[words[0]]
    options = {"-h", "--help"}
    for word in words[1:]:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        if found is None:
            assert word.startswith("-") or not word.islower(), f"there is no command {word}"
            break
        command = found
    return options | {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_command_exists_with_its_options(name: str) -> None:
    for command in commands(BY_NAME[name]):
        words = words_of(command)
        given = {word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1}
        assert given <= known_options(words), command


@pytest.mark.parametrize("name", BY_NAME)
def test_every_configuration_is_correct(name: str, tmp_path: Path) -> None:
    for block in blocks(BY_NAME[name]):
        if block.language == "toml":
            path = tmp_path / "holdfast.toml"
            path.write_text(block.text, encoding="utf-8")
            if name in CATALOGUES:
                write_schemas(tmp_path)
                read_catalog(path)
            elif name in RULES:
                (tmp_path / "climate.schema.json").write_text("{}")
                read_rules(path)
            elif name in JOBS:
                with click.Context(pipeline) as context:
                    read_jobs(path, pipeline, context)
            else:
                load(path, allow_anonymous=True)


def test_every_link_leads_to_a_page_and_a_heading() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in links(page) if page.parent.name != "newsfragments" else ():
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page}: {link}"
            assert not anchor or anchor in anchors(target), f"{page}: {link}"


def test_every_import_from_these_packages_is_possible() -> None:
    """Those in the blocks of Python, which only some tests run."""
    found = 0
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for block in blocks(page):
            if block.language == "python":
                for module, name in imports(dedent(block.text)):
                    found += 1
                    assert hasattr(import_module(module), name) or find_spec(f"{module}.{name}"), f"{page}: {name}"
    assert found > 10


#: the packages of this distribution
PACKAGES = ("holdfast", "holdfast_pipeline")


def imports(code: str) -> Iterator[tuple[str, str]]:
    """Yield each module of these packages in some code, and each name that it is to have."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            yield from ((node.module, each.name) for each in node.names)


def test_the_pages_have_commands_and_configurations() -> None:
    """Else the tests above would hold for nothing."""
    assert sum(len(list(commands(page))) for page in PAGES) > 60
    assert sum(block.language == "toml" for page in PAGES for block in blocks(page)) > 10
