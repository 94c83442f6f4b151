"""The files of the dashboard, at the same origin as the API that they use.

The paths are listed once, so no path leads out of the folder. A file is read when it is first asked for, and kept: all
of them have about a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from holdfast.admin.calls.call import Answer, Call

#: A page may load only what comes from here, and runs no script within its markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".mjs": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
        ".md": "text/plain; charset=utf-8",
        ".LICENSE": "text/plain; charset=utf-8",
    }
)
_INDEX = "/index.html"
_READS = ("GET", "HEAD")


class Files:
    """Answers calls for files; all others go to the API."""

    def __init__(self, api: Callable[[Call], Deferred[Answer]], folder: Path | None = None) -> None:
        self._api = api
        folder = Path(str(files("holdfast.dashboard"))) / "static" if folder is None else folder
        found = (path for path in folder.rglob("*") if path.suffix in TYPES and path.is_file())
        self._paths = {f"/{path.relative_to(folder).as_posix()}": path for path in found}
        if _INDEX in self._paths:
            self._paths["/"] = self._paths[_INDEX]
        self._answers: dict[str, Answer] = {}

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer any call."""
        if call.method in _READS and call.path in self._paths:
            return succeed(self._file(call.path))
        return self._api(call)

    def _file(self, path: str) -> Answer:
        kept = self._answers.get(path)
        if kept is None:
            file = self._paths[path]
            body = file.read_bytes()
            # The browser asks each time, so that pages and scripts of two versions never meet.
            headers = (
                ("Content-Security-Policy", POLICY),
                ("Cache-Control", "no-cache"),
                ("ETag", f'"{sha256(body).hexdigest()[:32]}"'),
            )
            kept = self._answers[path] = Answer(http.OK, body, TYPES[file.suffix], headers)
        return kept
