"""The image: its build needs no file that the build context leaves out, and takes only locked packages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def name_of(requirement: str) -> str:
    """Return the normal form of a requirement's name."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


def locked(name: str) -> dict[str, bool]:
    """Return the packages of a lock file, and whether all of them have hashes."""
    entries = re.sub(r"\\\n", " ", (ROOT / "requirements" / name).read_text()).splitlines()
    return {name_of(entry): "--hash=sha256:" in entry for entry in entries if entry.strip() and entry[0] != "#"}


def needed(*extras: str) -> set[str]:
    """Return the names of the packages that setup.cfg asks for."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found = setup["options"]["install_requires"].split("\n")
    for extra in extras:
        found += setup["options.extras_require"][extra].split("\n")
    return {name_of(line) for line in found if line and not line.startswith("holdfast")}


@pytest.mark.parametrize(("lock", "extras"), [("run.txt", ["postgres"]), ("dev.txt", ["postgres", "test", "dev"])])
def test_each_needed_package_is_locked_with_its_hash(lock: str, extras: list[str]) -> None:
    """If not: `make lock`."""
    packages = locked(lock)
    assert needed(*extras) <= packages.keys()
    assert all(packages.values())


def test_the_build_context_has_all_that_the_image_copies(tmp_path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in kept:
        source = ROOT / name
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, tmp_path / name)
        else:
            shutil.copy(source, tmp_path / name)
    for copied in re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE, re.MULTILINE):
        assert (tmp_path / copied).exists(), copied
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"holdfast/tap.py", "holdfast/migrations/newest.sql", "twisted/plugins/holdfast_plugin.py"} <= set(names)


def test_the_image_runs_without_root_and_takes_only_locked_packages() -> None:
    [user] = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)
    assert not user.startswith(("0", "root"))
    first, *others = re.findall(r"pip install (.*)", DOCKERFILE)
    assert "--require-hashes" in first
    assert all("--no-deps" in other for other in others)
