"""Which texts can be user names at all."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_no_username(name: str) -> bool:
    """Tell whether no user can have this name: it is empty, or it has control characters."""
    return not name or _CONTROL.search(name) is not None
