"""The first places of an order, among places from several parts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from holdfast.retained.store.scans.values import Place, Sorting


def first_places(places: Iterable[Place], sorting: Sorting, limit: int) -> list[Place]:
    """Return the first ``limit`` places behind ``sorting.beyond``."""
    if sorting.beyond is not None:
        beyond = sorting.rank(sorting.beyond)
        places = (place for place in places if sorting.rank(place) > beyond)
    return nsmallest(limit, places, key=sorting.rank)
