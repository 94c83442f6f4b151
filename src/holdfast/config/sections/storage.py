"""``[storage]``: the database, and when a change counts as durable."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Duration, Refused, Size, Text

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40})://")
_SQLITE = "sqlite:///"
_POSTGRES = "postgresql+psycopg"


@frozen
class StoreURL:
    """The kind of an option that holds the database's URL."""

    allowed: str = field(
        default="sqlite:///relative/path, sqlite:////absolute/path, postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE"
        " or an empty string",
        init=False,
    )

    def read(self, value: object) -> str:
        """Return the URL; raises Refused, without showing the value of what may hold a password."""
        url = Text(allowed=self.allowed).read(value)
        if not url:
            return url
        scheme = _SCHEME.match(url)
        if scheme is None:
            raise Refused(f"found no scheme such as sqlite://; allowed: {self.allowed}")
        if scheme[1] == _POSTGRES:
            return self._postgres(url)
        if re.match(r"(?i)postgres(ql)?(\+|:)", url):
            raise Refused(f"found the scheme {scheme[0]}; for Postgres write {_POSTGRES}://...")
        if scheme[1] != "sqlite":
            raise Refused(f"found the scheme {scheme[0]}; allowed: {self.allowed}")
        path = url.removeprefix(_SQLITE)
        if path in (url, "", ":memory:") or path.endswith("/"):
            raise Refused(f"found no path of a file after {_SQLITE}; allowed: {self.allowed}")
        if "?" in path:
            raise Refused(f"found a ? in the path; allowed: {self.allowed}, without parameters")
        return url

    def _postgres(self, url: str) -> str:
        """Return the URL; what it leaves out, libpq takes from its environment and files (PGPASSWORD, ~/.pgpass)."""
        try:
            parsed = urlsplit(url)
            parsed.port  # noqa: B018 - reading it checks it
        except ValueError:  # its text may show what stands where the password is
            raise Refused(f"found a URL whose host or port cannot be read; allowed: {self.allowed}") from None
        if parsed.netloc.count("@") > 1:
            raise Refused(
                f"found an @ more before the host than there may be: in a password, write %40; allowed: {self.allowed}"
            )
        if not parsed.path.strip("/"):
            raise Refused(f"found no name of a database after the host; allowed: {self.allowed}")
        return url


@frozen
class StorageConfig(Section):
    """Which database holds the retained messages, and what an acknowledgement promises."""

    url: str = option(
        StoreURL(),
        "",
        help="Database of the retained messages and Sessions. A relative path begins at the folder of this file."
        " Empty = holdfast.db in node.data_dir. What a Postgres URL leaves out comes from libpq's environment and"
        " files, such as PGPASSWORD and ~/.pgpass.",
        effect="The broker starts with what the other database holds; nothing is moved.",
        example="sqlite:////var/lib/holdfast/retained.db",
    )
    durability: str = option(
        Choice(("full", "process", "async")),
        "full",
        help="What an acknowledgement promises. full = every group commit is written through to the disk first:"
        " survives power loss. process = survives kill -9, not power loss. async = a commit at most every"
        " flush_interval, and acknowledgements do not wait for it.",
        effect="process and async acknowledge sooner, and can lose acknowledged changes as said.",
        example="process",
    )
    flush_interval: float = option(
        Duration("10ms", "1m"),
        "1s",
        help='Longest time between two commits. Only with durability = "async".',
        effect="Longer: fewer writes, and more acknowledged changes to lose when the process ends abruptly.",
        example="250ms",
    )
    max_pending: int = option(
        Size("64KB", "16GB"),
        "64MB",
        help="Bytes of accepted changes waiting for their commit above which publishing connections are paused.",
        effect="Higher: longer bursts pass without a pause, and more memory is used while the disk is slow.",
        example="16MB",
    )

    on_corruption: str = option(
        Choice(("refuse", "quarantine")),
        "refuse",
        help="What becomes of a damaged SQLite database at start. refuse = the broker ends with status 1 and says what"
        " to do. quarantine = the file is moved aside, and the broker starts with what can be read of it. Of no account"
        " with Postgres.",
        effect="quarantine: the broker starts whatever is left of the database, and what is not left is missing.",
        example="quarantine",
    )

    def complaints(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Refuse a flush_interval that would do nothing; its default may stand anywhere."""
        if self.durability != "async" and self.flush_interval != StorageConfig().flush_interval:
            message = f'has an effect only with storage.durability = "async"; found "{self.durability}"'
            yield "flush_interval", message, ("durability", "flush_interval")


def resolved_url(url: str, folder: Path, data_dir: Path) -> str:
    """Return the URL with an absolute path; an empty one becomes that of holdfast.db in ``data_dir``.

    That of a Postgres database stays as it is. Raises Refused when the resulting path cannot stand in a URL.
    """
    if url.startswith(_POSTGRES):
        return url
    path = folder / url.removeprefix(_SQLITE) if url else data_dir / "holdfast.db"
    absolute = os.path.abspath(path)
    if "?" in absolute:
        raise Refused(f"found a ? in the path {absolute}; a database's path must not contain one")
    return f"{_SQLITE}{absolute}"


def without_password(url: str) -> str:
    """Return the URL of a database as it may be shown."""
    hidden = re.sub(r"(://[^:/@]*):[^/@]*@", r"\1:***@", url, count=1)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", hidden)
