"""The contents of the wheel: every package, the migrations, the plugin, and the dependencies."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def setup() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy so that the build leaves nothing here."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE", "src", "migrations", "twisted"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(copy)], check=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(copy)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_every_package_is_listed(setup: ConfigParser) -> None:
    """The explicit list in setup.cfg is the tree."""
    listed = set(setup["options"]["packages"].split())
    source = ROOT / "src"
    found = {".".join(p.parent.relative_to(source).parts) for p in source.rglob("__init__.py")}
    assert listed == found | {"holdfast.migrations", "holdfast.migrations.versions", "twisted.plugins"}


def test_there_is_no_project_table() -> None:
    """With one, setuptools would ignore the dependencies of setup.cfg."""
    assert "project" not in tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_wheel_is_complete(wheel: zipfile.ZipFile, setup: ConfigParser) -> None:
    """It has every module, migration, template and file of the dashboard; its metadata has the dependencies."""
    names = set(wheel.namelist())
    modules = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.py")}
    migrations = {f"holdfast/{p.relative_to(ROOT)}" for p in (ROOT / "migrations").rglob("*.py")}
    templates = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("templates/*")}
    static = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("static/**/*") if p.is_file()}
    assert "holdfast/dashboard/static/vendor/preact.LICENSE" in static
    expected = (
        modules
        | migrations
        | templates
        | static
        | {
            "holdfast/py.typed",
            "holdfast/migrations/script.py.mako",
            "twisted/plugins/holdfast_plugin.py",
        }
    )
    assert expected <= names
    assert not {"twisted/__init__.py", "twisted/plugins/__init__.py"} & names
    (metadata,) = (name for name in names if name.endswith("METADATA"))
    text = wheel.read(metadata).decode().lower()
    for requirement in setup["options"]["install_requires"].split():
        assert f"requires-dist: {requirement.split('>')[0].replace('.', '-')}" in text.replace("zope.", "zope-")


def test_the_plugin_is_only_strings() -> None:
    """Every run of twistd imports every plugin, so this one imports nothing of ours."""
    tree = ast.parse((ROOT / "twisted" / "plugins" / "holdfast_plugin.py").read_text())
    imports = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert imports == ["from twisted.application.service import ServiceMaker"]
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    assert all(isinstance(argument, ast.Constant) for argument in call.args)
