"""The pieces of SQL in which the dialects differ, and expressions made of them."""

from __future__ import annotations

from attrs import frozen

from holdfast.sizes import STORED_ENTRY


@frozen(eq=False, kw_only=True)  # compared by identity: the cached texts have it in their keys
class Fragments:
    """The pieces of SQL in which the dialects differ.

    The braces of ``among`` and ``list_of`` take the name of a parameter or a column, those of ``tuple`` and ``tuples``
    several names, those of ``separator_at`` a text, and those of ``for_each`` a subquery about ``item.value``.
    """

    empty: str  #: an empty byte string
    topic_bytes: str  #: the topic as a part of a packet
    topic_length: str  #: the length of the topic in bytes
    length: str  #: the function for the length of a byte string
    differs: str  #: the comparison that takes NULL for a value
    greatest: str  #: the function for the greater one of two values
    among: str  #: being in a bound list
    list_of: str  #: all values of a column, as one value
    packets: str  #: all packets of a subquery, concatenated
    details: str  #: the QoS and the expiry of all messages of a subquery
    tuple: str  #: some values as one value
    tuples: str  #: some columns of all messages of a subquery, as one value
    for_each: str  #: the tuples that a subquery returns for each of the bound ``topics``, as one value
    contains: str  #: whether the topic has the bound text ``contains``
    separator_at: str  #: the position of the first "/" in a text, 0 for none
    lowest: str  #: the lowest character of a topic, U+0001
    numbers: str  #: all lengths of a subquery, as one value
    none_longer: str  #: the condition that no packet of the store is longer than ``longest``, where other nodes write
    matches_pattern: str  #: comparing a topic with a pattern
    lock: str  #: locks rows against other nodes, in the order of a column
    lock_free: str  #: locks rows, but passes over rows that another node has locked


def stored_size(fragments: Fragments) -> str:
    """Return the expression for the bytes of a message that totals and quotas count. No payload is read."""
    return f"(size + {fragments.topic_length} + {fragments.length}(properties5) + {STORED_ENTRY})"


def below(bounded: bool) -> str:
    """Return the condition for the end of a range."""
    return " AND topic < :high" if bounded else ""
