"""The folder for files that later commands use. Only the user may write to it: Java loads classes from there."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the user's folder in an environment, made if it is not there; None if it cannot be used."""
    home = environment.get("HOME", "")
    folder = Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache"), "holdfast")
    if not folder.is_absolute() or '"' in str(folder):
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    others = stat.S_IWGRP | stat.S_IWOTH
    return None if found.st_uid != os.geteuid() or found.st_mode & others else folder
