"""The libraries in the dashboard are the ones that their README names."""

from __future__ import annotations

import re
from hashlib import sha256

from tests.dashboard.fake_api import STATIC

VENDOR = STATIC / "vendor"
ROW = re.compile(r"^\| (\S+) \| (\S+) \| (\d+\.\d+\.\d+) \| (\S+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_every_file_has_the_hash_and_the_licence_that_the_readme_tells() -> None:
    """A file that was changed by hand, or a new one without a licence, is found."""
    rows = ROW.findall((VENDOR / "README.md").read_text())
    told = {name: digest for name, _, _, _, digest in rows}
    files = {each.name for each in VENDOR.iterdir()} - {"README.md"}
    licences = {f"{package}.LICENSE" for _, package, _, _, _ in rows}
    assert files == set(told) | licences
    assert {name: sha256((VENDOR / name).read_bytes()).hexdigest() for name in told} == told
    assert all(len((VENDOR / licence).read_text()) > 500 for licence in licences)


def test_nothing_of_the_dashboard_comes_from_another_place() -> None:
    """No file loads or links to another origin, and none turns text into markup or code."""
    for file in STATIC.rglob("*"):
        if file.suffix in {".js", ".css", ".html"} and file.parent != VENDOR:
            text = file.read_text()
            assert not re.search(r"https?://(?!www\.w3\.org/)", text), file.name
            banned = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|style=\"|\son\w+=\""
            assert not re.search(banned, text), file.name


def test_the_versions_of_mqttjs_agree() -> None:
    """The bundle says its own version."""
    (version,) = {row[2] for row in ROW.findall((VENDOR / "README.md").read_text()) if row[1] == "mqtt"}
    assert f'version:"{version}"' in (VENDOR / "mqtt.js").read_text()
