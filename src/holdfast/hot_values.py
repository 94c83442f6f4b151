"""The decorator for the few values that are made once for each message.

``attrs.frozen`` makes a class immutable and costs three times as much to create an instance: every field is set
through ``object.__setattr__``. A PUBLISH passes through four such values, so they are immutable for the type checker
only. All other values use ``attrs.frozen`` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen as hot_frozen
else:
    from attrs import define as hot_frozen

__all__ = ["hot_frozen"]
