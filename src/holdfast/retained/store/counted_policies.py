"""The seam between the counting of usage and the policies (:mod:`holdfast.retained.policies`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol


class ICountedPolicies(Protocol):
    """The policies with a quota, as the store counts their topics."""

    @property
    def counted_filters(self) -> Mapping[str, str]:
        """The Topic Filter of each scope; not all of its topics need count in the scope."""

    def scope_of(self, topic: str) -> str | None:
        """Return the scope that a topic counts in, None for none."""


class NoCountedPolicies:
    """No policy has a quota."""

    counted_filters: Mapping[str, str] = MappingProxyType({})

    def scope_of(self, topic: str) -> str | None:
        """Return None."""
        return None


NO_COUNTED_POLICIES = NoCountedPolicies()
