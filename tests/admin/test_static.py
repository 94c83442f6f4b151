"""The files of the dashboard: what is served, how it is kept by browsers, and what its pages may load."""

from __future__ import annotations

import gzip
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import succeed

from holdfast.admin.call import Answer, Call, Head
from holdfast.admin.http.static import StaticFiles
from holdfast.identity.addresses import Peer
from tests.storage.doubles import result_of

HERE = Peer(ip_address("127.0.0.1"))


@pytest.fixture
def files(tmp_path: Path) -> StaticFiles:
    """A folder with a page, a script and what must not be served."""
    static = tmp_path / "static"
    (static / "parts").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html>")
    (static / "parts" / "app.js").write_text("//\n" * 500)
    (static / "notes.py").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    return StaticFiles(static, lambda _: succeed(Answer(418)))


def ask(files: StaticFiles, path: str, method: str = "GET", host: str = "127.0.0.1:18083", **fields: Any) -> Answer:
    head = Head(method=method, peer=HERE, host=host, **fields)
    found: Answer = result_of(files.answer(Call(method, path, {}, head=head)))
    return found


def test_files_have_their_types_and_the_page_is_at_the_root(files: StaticFiles) -> None:
    page, script = ask(files, "/"), ask(files, "/parts/app.js")
    assert (page.status, page.body, page.content_type) == (200, b"<!doctype html>", "text/html; charset=utf-8")
    assert (script.status, script.content_type) == (200, "text/javascript; charset=utf-8")


@pytest.mark.parametrize(
    "path",
    ["/../secret.txt", "/parts/../../secret.txt", "/%2e%2e/secret.txt", "//etc/passwd", "/notes.py", "/parts",
     "/parts/", "/index.html/", "/static/../secret.txt", "/api/v5/users"],
)  # fmt: skip
def test_nothing_else_is_served(files: StaticFiles, path: str) -> None:
    assert ask(files, path).status == 418


def test_files_are_not_changed_by_calls(files: StaticFiles) -> None:
    assert ask(files, "/", "POST").status == 418


def test_a_current_copy_is_not_sent_again(files: StaticFiles) -> None:
    etag = dict(ask(files, "/").headers)["ETag"]
    for known in (etag, f"W/{etag}", f'"x", {etag}'):
        found = ask(files, "/", etags=known)
        assert (found.status, found.body) == (304, b"")
    assert ask(files, "/", etags='"x"').status == 200


def test_text_is_sent_compressed_to_those_who_take_it(files: StaticFiles) -> None:
    plain, packed = ask(files, "/parts/app.js"), ask(files, "/parts/app.js", encodings="br, gzip;q=0.8")
    assert dict(packed.headers)["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert dict(packed.headers)["ETag"] != dict(plain.headers)["ETag"]
    assert "Content-Encoding" not in dict(ask(files, "/", encodings="gzip").headers)  # too short to gain


def test_pages_load_nothing_from_elsewhere(files: StaticFiles) -> None:
    """But MQTT over WebSocket from the same host, whose listener has a port of its own."""
    policy = dict(ask(files, "/").headers)["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "connect-src 'self';" in policy
    assert "unsafe" not in policy
    for hostile in ("a;script-src *", "[::1]", ""):
        policy = dict(ask(files, "/", host=hostile).headers)["Content-Security-Policy"]
        assert "connect-src 'self';" in policy
