"""``[storage]``: the database, and the durability of changes."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from attrs import field, frozen

from holdfast.config.options import Choice, Duration, Integer, InvalidValue, Section, TakesEffect, Text, option
from holdfast.core.units import database_url

# ``[node]``: this broker itself.


@frozen
class FolderPath:
    """The kind of options with the path of a folder."""

    allowed: str = field(default="the path of a folder, relative or absolute", init=False)

    def read(self, value: object) -> str:
        """Return the path; raises InvalidValue."""
        path = Text(allowed=self.allowed, empty=False).read(value)
        if path.startswith("~"):
            raise InvalidValue(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return path


@frozen
class NodeConfig(Section):
    """The folder of this broker's data, and its number."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    data_dir: str = option(
        FolderPath(),
        "data",
        help="Folder of all data of this broker. A relative path begins at the folder of this file.",
        effect="The broker starts with the data in the other folder, also with its default database. Nothing is moved.",
        example="/var/lib/holdfast",
    )
    id: int = option(
        Integer(1, 255),
        1,
        help="Number of this broker, recorded with every change to a retained message.",
        effect="Brokers that share a database need different numbers. Never change the number of a used database.",
        example=2,
    )


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40})://")
_SQLITE = "sqlite:///"
_POSTGRES = "postgresql+psycopg"


@frozen
class StoreURL:
    """The kind of options with the URL of a database."""

    allowed: str = field(
        default="sqlite:///relative/path, sqlite:////absolute/path, postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE"
        " or an empty string",
        init=False,
    )

    def read(self, value: object) -> str:
        """Return the URL; raises InvalidValue, whose text never shows a part that may have a password."""
        url = database_url(Text(allowed=self.allowed).read(value))
        if not url:
            return url
        scheme = _SCHEME.match(url)
        if scheme is None:
            raise InvalidValue(f"found no scheme such as sqlite://; allowed: {self.allowed}")
        if scheme[1] == _POSTGRES:
            return self._postgres(url)
        if re.match(r"(?i)postgres(ql)?(\+|:)", url):
            raise InvalidValue(f"found the scheme {scheme[0]}; for Postgres write {_POSTGRES}://...")
        if scheme[1] != "sqlite":
            raise InvalidValue(f"found the scheme {scheme[0]}; allowed: {self.allowed}")
        path = url.removeprefix(_SQLITE)
        if path in (url, "", ":memory:") or path.endswith("/"):
            raise InvalidValue(f"found no path of a file after {_SQLITE}; allowed: {self.allowed}")
        if "?" in path:
            raise InvalidValue(f"found a ? in the path; allowed: {self.allowed}, without parameters")
        return url

    def _postgres(self, url: str) -> str:
        """Check the URL. libpq takes missing parts from its environment and files (PGPASSWORD, ~/.pgpass)."""
        try:
            parsed = urlsplit(url)
            parsed.port  # noqa: B018 - reading it checks it
        except ValueError:  # the text of the error may show the password
            raise InvalidValue(f"found a URL whose host or port cannot be read; allowed: {self.allowed}") from None
        if parsed.netloc.count("@") > 1:
            raise InvalidValue(
                f"found more than one @ before the host: in a password, write %40; allowed: {self.allowed}"
            )
        if not parsed.path.strip("/"):
            raise InvalidValue(f"found no name of a database after the host; allowed: {self.allowed}")
        return url


@frozen
class StorageConfig(Section):
    """The database, and the promise of an acknowledgement."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    url: str = option(
        StoreURL(),
        "",
        help="Database of the retained messages and Sessions. A relative path begins at the folder of this file."
        " Empty = holdfast.db in node.data_dir. libpq takes missing parts of a Postgres URL from its environment and"
        " files, such as PGPASSWORD and ~/.pgpass.",
        effect="The broker starts with the data in the other database. Nothing is moved.",
        example="sqlite:////var/lib/holdfast/retained.db",
    )
    durability: str = option(
        Choice(("full", "process", "async")),
        "full",
        help="The promise of an acknowledgement. full = the commit is on the disk: it survives power loss. process ="
        " the commit survives kill -9, not power loss. async = acknowledgements do not wait for the commit, which comes"
        " at most flush_interval later.",
        effect="process and async acknowledge sooner, and can lose acknowledged changes.",
        example="process",
    )
    flush_interval: float = option(
        Duration("10ms", "1m"),
        "1s",
        help='Longest time between two commits. Only with durability = "async".',
        effect="Longer: fewer writes, and more acknowledged changes are lost if the process is killed.",
        example="250ms",
    )

    on_corruption: str = option(
        Choice(("refuse", "quarantine")),
        "refuse",
        help="Handling of a damaged SQLite database at start. refuse = the broker ends with status 1 and tells the"
        " remedies. quarantine = the broker moves the file aside, and starts with all rows that it can read. Without"
        " effect for Postgres.",
        effect="quarantine: the broker always starts; unreadable rows are lost.",
        example="quarantine",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Refuse a flush_interval without effect; the default is always allowed."""
        if self.durability != "async" and self.flush_interval != StorageConfig().flush_interval:
            message = f'has an effect only with storage.durability = "async"; found "{self.durability}"'
            yield "flush_interval", message, ("durability", "flush_interval")


def resolved_url(url: str, folder: Path, data_dir: Path) -> str:
    """Return the URL with an absolute path; an empty one becomes that of holdfast.db in ``data_dir``.

    The URL of a Postgres database gets its one form. Raises InvalidValue if a URL cannot have the resulting path.
    """
    url = database_url(url)
    if url.startswith(_POSTGRES):
        return url
    path = folder / url.removeprefix(_SQLITE) if url else data_dir / "holdfast.db"
    absolute = os.path.abspath(path)
    if "?" in absolute:
        raise InvalidValue(f"found a ? in the path {absolute}; a database's path must not contain one")
    return f"{_SQLITE}{absolute}"


def without_password(url: str) -> str:
    """Return the URL of a database without its password, for messages."""
    hidden = re.sub(r"(://[^:/@]*):[^/@]*@", r"\1:***@", url, count=1)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", hidden)
