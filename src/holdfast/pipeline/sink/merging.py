"""Merging what is staged: through the broker that runs, or in its place where none does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from holdfast.access.interfaces import Access, Inaccessible
from holdfast.access.opening import access_to
from holdfast.access.stand_in import standing_in
from holdfast.config import Config, ConfigError, default, load
from holdfast.pipeline.database.location import url_of
from holdfast.pipeline.errors import PipelineError
from holdfast.retained.importing.verdicts import Merge
from holdfast.storage.database import StoreUnusable
from holdfast.storage.lock import DirectoryUnusable


@frozen
class Target:
    """Where to merge: ``storage`` is a database's URL, ``config`` a broker's file; one of them is given.

    Of an SQLite database given by its URL, the broker is the one whose data directory it is in. One of Postgres is then
    written directly, for its brokers may be anywhere.
    """

    storage: str | None
    config: str | None

    @property
    def url(self) -> str:
        """The database's URL. Raises :class:`PipelineError`."""
        return url_of(self.storage, self.config)

    def merge(self, job: str, merge: Merge, rejected: int, staged: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Merge, and tell after each chunk what the API tells; so many were ``rejected`` before.

        Raises :class:`PipelineError`.
        """
        body = json.dumps(staged).encode()
        with self._access() as access:
            rest = b""
            arguments = {"job": job, "merge": merge.value, **({"rejected": str(rejected)} if rejected else {})}
            for piece in access.pieces("/merge", arguments, "POST", body):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    said = json.loads(line)
                    if said["state"] == "failed":
                        raise PipelineError(f"the import is not complete: {said['message']}; run the same job again")
                    yield said

    @contextmanager
    def _access(self) -> Iterator[Access]:
        try:
            config = self._config()
            known = self.config is not None or config.storage.url.startswith("sqlite")
            with access_to(config) if known else standing_in(config) as access:
                yield access
        except (Inaccessible, StoreUnusable, DirectoryUnusable, ConfigError) as error:
            raise PipelineError(str(error)) from error

    def _config(self) -> Config:
        if self.config is not None:
            return load(Path(self.config), allow_anonymous=True)
        url = self.url
        folder = str(Path(url.removeprefix("sqlite:///")).parent) if url.startswith("sqlite") else None
        return default().override([], folder, url, allow_anonymous=True, cwd=Path.cwd())
