"""The files that a configuration names, for whatever they are read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.config.document import Config
from holdfast.config.fields import Form, Option, Section, described, variants_of
from holdfast.config.kinds import FilePath
from holdfast.config.secrets import Secret

#: a value that changes when the file changes
FileState = object


def file_states(config: Config, environment: Mapping[str, str]) -> Mapping[Path, FileState]:
    """Return each file that the configuration names, in the order of the reference, with its state. Links are followed.

    The configuration file itself is none of them: its differences are compared. The ``environment`` names the folder of
    credentials.
    """
    return {path: _state(path) for path in _files(config, config, environment)}


def _files(section: Section, config: Config, environment: Mapping[str, str]) -> Iterator[Path]:
    for key, entry in described(type(section)).items():
        value = getattr(section, key)
        if isinstance(entry, Option):
            if isinstance(entry.kind, FilePath) and value:
                yield config.absolute(value)
            for secret in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(secret, Secret):
                    yield from _secret_files(secret, config, environment)
        elif entry.form is Form.TABLE and value is not None:
            yield from _files(value, config, environment)
        elif entry.form is Form.NAMED:
            for table in value.values():
                yield from _files(table, config, environment)
    named = variants_of(type(section))
    for variant in getattr(section, named[0]).values() if named is not None else ():
        yield from _files(variant, config, environment)


def _secret_files(secret: Secret, config: Config, environment: Mapping[str, str]) -> Iterator[Path]:
    if secret.place == "file":
        yield config.absolute(secret.name)
    elif secret.place == "credential" and "CREDENTIALS_DIRECTORY" in environment:
        yield Path(environment["CREDENTIALS_DIRECTORY"]) / secret.name


def _state(path: Path) -> FileState:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
