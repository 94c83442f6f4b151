"""The static files of the dashboard. Only files that are found in the folder are served: no path leads out of it.

Each is read and compressed when it is first asked for. Their names have no versions. So a browser asks each time
whether its copy is current, and gets 304 if it is.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.call import Answer, Call, Head
from holdfast.admin.http.site import Answering

#: the types of the files that are served; others are not
TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
#: what a page may load: files of this origin, and answers and WebSockets of the API; no script within its markup
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COMPRESSED = (".css", ".html", ".js", ".json", ".svg", ".txt", ".webmanifest")
_INDEX = "/index.html"
_LEAST_COMPRESSED = 500


@frozen
class _File:
    body: bytes
    compressed: bytes | None
    etag: str
    content_type: str


class StaticFiles:
    """Answers GET and HEAD for files of a folder, and hands all other calls on."""

    def __init__(self, folder: Path, others: Answering) -> None:
        self._folder = folder
        self._others = others
        self._read = lru_cache(maxsize=None)(_read)

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer a call."""
        path = _INDEX if call.path == "/" else call.path
        if call.method not in ("GET", "HEAD") or path not in self._paths:
            return self._others(call)
        return succeed(_answer(self._read(self._paths[path]), call.head))

    @cached_property
    def _paths(self) -> Mapping[str, Path]:
        """The files by their paths in URLs."""
        files = (path for path in sorted(self._folder.rglob("*")) if path.suffix in TYPES and path.is_file())
        return {f"/{path.relative_to(self._folder).as_posix()}": path for path in files}


def _read(path: Path) -> _File:
    body = path.read_bytes()
    compressed = None
    if path.suffix in _COMPRESSED and len(body) >= _LEAST_COMPRESSED:
        compressed = gzip.compress(body, mtime=0)
    return _File(body, compressed, sha256(body).hexdigest()[:32], TYPES[path.suffix])


def _answer(file: _File, head: Head | None) -> Answer:
    encodings = "" if head is None or head.encodings is None else head.encodings
    takes_gzip = "gzip" in [each.strip().partition(";")[0] for each in encodings.split(",")]
    compressed = file.compressed if takes_gzip else None
    etag = f'"{file.etag}{"-gzip" if compressed is not None else ""}"'
    headers = [
        ("ETag", etag),
        ("Cache-Control", "no-cache"),
        ("Vary", "Accept-Encoding"),
        ("Content-Security-Policy", POLICY),
    ]
    known = "" if head is None or head.etags is None else head.etags
    if etag in [each.strip().removeprefix("W/") for each in known.split(",")]:
        return Answer(http.NOT_MODIFIED, headers=tuple(headers))
    if compressed is not None:
        headers.append(("Content-Encoding", "gzip"))
    body = file.body if compressed is None else compressed
    return Answer(http.OK, body, file.content_type, tuple(headers))
