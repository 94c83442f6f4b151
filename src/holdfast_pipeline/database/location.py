"""The URL of the database that a user names: by the URL itself, or by the broker's configuration file.

Each Python worker of Spark imports this module. Of the broker's modules it takes no more than a URL needs.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.core.units import database_url
from holdfast.storage.api import StoreUnusable, file_of, parsed
from holdfast_pipeline.errors import PipelineError, WrongUsage


def url_of(storage: str | None, config: str | None, context: str = "") -> str:
    """Return the URL of a database, with an absolute path.

    ``storage`` is a URL and ``config`` the path of a broker's file; exactly one of them must be given. Messages start
    with ``context``. Raises :class:`PipelineError`.
    """
    if (storage is None) == (config is None):
        raise WrongUsage(f"{context}name the database: either by storage (its URL) or by config (the broker's file)")
    if storage is None:
        assert config is not None
        from holdfast.config import ConfigError, load

        try:
            return load(Path(config), allow_anonymous=True).storage.url
        except ConfigError as error:
            raise PipelineError(str(error)) from error
    storage = database_url(storage)
    if file_of(storage) is not None:
        return storage
    try:
        url = parsed(storage)
    except StoreUnusable as error:
        raise WrongUsage(f"{context}storage: {error}") from error
    if url.get_backend_name() == "sqlite" and url.database:
        # Executors have other working directories.
        return f"sqlite:///{Path(url.database).absolute()}"
    return storage
