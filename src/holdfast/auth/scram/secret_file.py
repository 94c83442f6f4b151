"""A persistent secret of this broker: random bytes in a file."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from holdfast.auth.user_file import contents, problem
from holdfast.config.problems import ConfigError
from holdfast.config.toml.file import display_name

_BYTES = 64


def persistent_secret(path: Path) -> bytes:
    """Return the secret in a file. A missing file is created (mode 0600), with its folder (0700).

    Raises ConfigError if the file cannot be created or read.
    """
    name = display_name(path)
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path)
    except OSError as error:
        raise problem(name, None, f"cannot be made: {error.strerror}") from None
    secret, _ = contents(path, name, "start the broker again, and it makes a new one")
    if len(secret) != _BYTES:
        raise _damaged(name, len(secret))
    return secret


def _damaged(name: str, found: int) -> ConfigError:
    return problem(
        name, None, f"has {found} bytes instead of {_BYTES}; remove the file, and the broker makes a new one"
    )


def _make(path: Path) -> None:
    """Write the file as a whole, unless another process was faster: a link never replaces a file."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(os.urandom(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
