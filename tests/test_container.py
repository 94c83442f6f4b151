"""The image: its build needs no file that the build context leaves out, and takes only locked packages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.processes import HOLDFAST_RUN, BrokerProcess

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


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("run.txt", ["postgres"]),
        ("dev.txt", ["postgres", "unit", "test", "dev"]),
        ("unit.txt", ["postgres", "unit"]),
    ],
)
def test_each_needed_package_is_locked_with_its_hash(lock: str, extras: list[str]) -> None:
    """If not: `make lock`."""
    packages = locked(lock)
    assert needed(*extras) <= packages.keys()
    assert all(packages.values())


def test_the_broker_s_tests_take_the_same_versions_and_neither_spark_nor_a_browser() -> None:
    """If not: `make lock`."""
    some, all_of_them = (
        set(re.findall(r"^[a-z]\S+", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("unit.txt", "dev.txt")
    )
    assert some <= all_of_them
    assert not {"pyspark", "pandas", "pyarrow", "grpcio", "playwright", "duckdb"} & locked("unit.txt").keys()


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


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The configuration of the image, with its folders and ports replaced."""
    for folder in ("etc", "var"):
        (tmp_path / folder).mkdir(mode=0o700)
    text = (ROOT / "etc" / "container" / "holdfast.toml").read_text()
    for there, here in (("/etc/holdfast", "etc"), ("/var/lib/holdfast", "var")):
        text = text.replace(there, str(tmp_path / here))
    file = tmp_path / "holdfast.toml"
    file.write_text(re.sub(r'"tcp:\d+"', '"tcp:0:interface=127.0.0.1"', text))
    return file


def command_of(kind: str) -> list[str]:
    """Return the command of the image's CMD or HEALTHCHECK."""
    [words] = re.findall(rf"^{kind}(?: --\S+)*(?: CMD)? (\[.*\])$", DOCKERFILE, re.MULTILINE)
    return [str(word) for word in json.loads(words)]


def test_the_image_without_its_files_says_which_are_missing(mounted: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.commands", "check-config", str(mounted)],
        capture_output=True,
        text=True,
        check=False,
    )
    for name in ("fullchain.pem", "privkey.pem", "passwords", "rules.toml"):
        path = re.escape(str(mounted.parent / "etc" / name))
        assert re.search(rf"{path}: there is no such file|there is no file {path}", done.stderr)
    started = BrokerProcess(mounted.parent, "--config", str(mounted), listen=False, program=HOLDFAST_RUN)
    started.launch()
    status, errors = started.wait()
    assert status == 1
    assert "there is no" in errors
    assert "Traceback" not in errors


def test_the_image_with_its_files_serves_and_is_healthy(mounted: Path) -> None:
    """As the page on installing says: files in one folder, a user by ``passwd add``, and the command of the image."""
    certificate, key = Authority().issue("localhost", ["localhost"]).write(mounted.parent, "server")
    files = mounted.parent / "etc"
    certificate.rename(files / "fullchain.pem")
    key.rename(files / "privkey.pem")
    shutil.copy(ROOT / "etc" / "examples" / "rules.toml", files)
    holdfast = [sys.executable, "-m", "holdfast.commands"]
    subprocess.run([*holdfast, "passwd", "add", files / "passwords", "kitchen"], input=b"secret\n", check=True)
    run, *arguments = command_of("CMD")
    assert (run, arguments) == ("run", ["--config", "/opt/holdfast/holdfast.toml"])
    options = ("--config", str(mounted), "--data-dir", str(mounted.parent / "var"))
    broker = BrokerProcess(mounted.parent, *options, listen=False, program=HOLDFAST_RUN)
    try:
        broker.start()
        assert [line.split()[1] for line in broker.lines if line.startswith("listening ")] == ["mqtt", "websocket"]
        _, *ping = command_of("HEALTHCHECK")
        subprocess.run(
            [*holdfast, *(word.replace("/var/lib/holdfast", str(mounted.parent / "var")) for word in ping)], check=True
        )
    finally:
        broker.end()
