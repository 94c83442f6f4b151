"""The library of the charts is the one that its README names, and the page's own scripts make no markup of text."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[3]
STATIC = files("holdfast_pipeline.report").joinpath("static")
VENDOR = STATIC.joinpath("vendor")
ROW = re.compile(r"^\| (\S+) \| (\S+) \| (\d+\.\d+\.\d+) \| (\S+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_the_library_has_the_hash_version_and_licences_that_the_readme_tells() -> None:
    """A file that was changed by hand, or made of another version, is found. Each report carries the notices."""
    ((name, package, version, licence, digest),) = ROW.findall(VENDOR.joinpath("README.md").read_text("utf-8"))
    library = VENDOR.joinpath(name).read_bytes()
    assert (name, package, licence) == ("echarts.js", "echarts", "Apache-2.0")
    assert sha256(library).hexdigest() == digest
    locked = json.loads((ROOT / "requirements/echarts/package-lock.json").read_text())["packages"]
    assert locked["node_modules/echarts"]["version"] == version
    assert all("integrity" in one and "resolved" not in one for name, one in locked.items() if name)
    notice = re.search(rb"/\*!\s+Apache ECharts .*?\*/", library, re.DOTALL)
    assert notice
    for word in (version.encode(), b"Apache License, Version 2.0", b"Baidu Inc.", b"Mike Bostock"):
        assert word in notice[0]
    for part in ("echarts", "zrender", "d3"):
        assert len(VENDOR.joinpath(f"{part}.LICENSE").read_text("utf-8")) > 500


def test_no_script_makes_markup_or_code_of_text_and_none_can_end_its_element() -> None:
    """The policy of the page forbids code that is made of text, so the library must not need it."""
    for name in ("charts.js", "page.js"):
        text = STATIC.joinpath(name).read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|https?://", text), name
    for name in ("charts.js", "page.js", "vendor/echarts.js"):
        text = STATIC.joinpath(*name.split("/")).read_text("utf-8")
        assert not re.search(r"</script|<!--|\beval\(|new Function", text), name
