"""The files of the dashboard: at their paths only, under a policy that forbids everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.calls.call import Answer, Call
from holdfast.admin.http.files import POLICY, Files

API = Answer(404, b"of the API")


def answer(files: Files, path: str, method: str = "GET") -> Answer:
    found: list[Answer] = []
    files.answer(Call(method, path, {})).addCallback(found.append)
    return found[0]


@pytest.fixture(scope="module")
def files() -> Files:
    def api(_call: Call) -> Deferred[Answer]:
        return succeed(API)

    return Files(api)


def test_the_dashboard_is_at_the_root(files: Files) -> None:
    page = answer(files, "/")
    assert b"<title>Holdfast</title>" in page.body
    assert page.content_type == "text/html; charset=utf-8"
    assert dict(page.headers)["Content-Security-Policy"] == POLICY
    assert answer(files, "/app.js").content_type == "text/javascript; charset=utf-8"
    assert len(answer(files, "/vendor/mqtt.mjs").body) > 100_000


def test_a_changed_file_has_another_mark(tmp_path: Path) -> None:
    """The browser keeps a file as long as its mark stays the same."""
    marks = []
    for text in ("one", "two", "one"):
        (tmp_path / "a.js").write_text(text)
        marks.append(dict(answer(Files(lambda _: succeed(API), tmp_path), "/a.js").headers)["ETag"])
    assert marks[0] == marks[2] != marks[1]


@pytest.mark.parametrize(
    "path", ["/../setup.cfg", "/%2e%2e/__init__.py", "//index.html", "/style", "/style/", "/index.html/", "/API/", ""]
)
def test_other_paths_are_those_of_the_api(files: Files, path: str) -> None:
    assert answer(files, path) is API


def test_only_reads_are_for_files(files: Files) -> None:
    assert answer(files, "/", "POST") is API
    assert answer(files, "/", "HEAD").status == 200
