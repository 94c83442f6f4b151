"""What all files with rules have in common."""

from __future__ import annotations

import stat
from pathlib import Path

from holdfast.config.problems import ConfigError, ConfigProblem
from holdfast.config.toml.file import display_name

#: The most bytes of a file with rules. 100,000 rules may have 10 MB.
LARGEST = 16 * 1024 * 1024


def check_mode(path: Path) -> None:
    """Refuse a file that every user of this machine may write. Raises ConfigError; not for a missing file."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # its reader says it better
        return
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        name = display_name(path)
        message = f"every user of this machine may change these rules; run: chmod o-w {name}"
        raise ConfigError([ConfigProblem(name, None, "", message)])
