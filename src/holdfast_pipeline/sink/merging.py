"""Merging a staging area: through the running broker, or in its place if none runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from holdfast.commands.api import Access, Inaccessible, MergeFailed, access_to, merge_staged, standing_in
from holdfast.config import Config, ConfigError, default, load
from holdfast.retained.api import Merge, StagingUnusable
from holdfast.storage.api import DirectoryUnusable, StoreUnusable
from holdfast_pipeline.database.location import url_of
from holdfast_pipeline.errors import PipelineError


@frozen
class Target:
    """The database to import into: either ``storage``, its URL, or ``config``, the broker's file, is given.

    The broker of an SQLite database given by its URL is the one whose data directory holds the database. A Postgres
    database given by its URL is written directly, because its brokers may run on any host.
    """

    storage: str | None
    config: str | None

    @property
    def url(self) -> str:
        """The database's URL. Raises :class:`PipelineError`."""
        return url_of(self.storage, self.config)

    def anywhere(self) -> Target:
        """Return the same target for processes with other working directories. Raises :class:`PipelineError`."""
        if self.config is None:
            return Target(self.url, None)
        return Target(self.storage, str(Path(self.config).absolute()))

    def merge(self, job: str, merge: Merge, rejected: int, staged: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Merge a staging area, and yield the API's report after each part; ``rejected`` rows were rejected before.

        Raises :class:`PipelineError`.
        """
        try:
            with self._access() as access:
                yield from merge_staged(access, job=job, merge=merge.value, rejected=rejected, staged=staged)
        except MergeFailed as error:
            raise PipelineError(f"the import is not complete: {error}; run the same job again") from error

    @contextmanager
    def _access(self) -> Iterator[Access]:
        try:
            config = self._config()
            if self.config is not None or config.storage.url.startswith("sqlite"):
                with access_to(config) as access:
                    yield access
                return
            with standing_in(config) as access:
                yield access
        except (Inaccessible, StoreUnusable, DirectoryUnusable, ConfigError) as error:
            raise PipelineError(str(error)) from error

    def _config(self) -> Config:
        if self.config is not None:
            return load(Path(self.config), allow_anonymous=True)
        url = self.url
        folder = str(Path(url.removeprefix("sqlite:///")).parent) if url.startswith("sqlite") else None
        return default().override([], folder, url, allow_anonymous=True, cwd=Path.cwd())


@contextmanager
def staging_explained() -> Iterator[None]:
    """Raise :class:`PipelineError` if a staging area cannot be used."""
    try:
        yield
    except StagingUnusable as error:
        raise PipelineError(str(error)) from error
