"""The size of the next statement of a search: how many jumps, and how many topics of a walk.

How it works
------------
A jump costs about as much as a walk over fifty topics, so jumps pay if they pass over at least ``topics_per_jump``
(64) topics each. Whether jumps pay depends on the stored topics, and no statistics tell that. So the search tries both
ways in each statement, and the winning way doubles its size for the next statement. The losing way starts again with
its smallest size, so a search never costs much more than with the winning way alone:

======================  =====  ======
statement               jumps  topics
======================  =====  ======
first                       8    1024
jumps won                  16    1024
jumps won                  32    1024
walk won                    8    2048
======================  =====  ======

A search that walks at the largest size tries jumps only in every eighth statement.

If a walk has so many matches that the read was full before its end, jumps cannot help: none are tried until the next
walk is read to its end. The sizes of a Topic Filter are kept between reads, so the second client with the same filter
starts where the first one ended.
"""

from __future__ import annotations

from attrs import define, field

#: The jumps of a first attempt: few, because an unsuccessful attempt costs time.
FEWEST_JUMPS = 8
#: The topics of a first walk.
FEWEST_TOPICS = 1024
#: The walks of the largest size without an attempt to jump, after an attempt that lost.
WALKS_WITHOUT_JUMPS = 7


@define
class ScanSize:
    """The sizes for one Topic Filter. No statement walks more than ``most`` topics, or jumps for a longer time.

    Without ``jumps``, the next statement only walks. If the matches are ``dense``, it need not look for them.
    """

    topics_per_jump: int
    most: int
    jumps: int = field(init=False)
    topics: int = field(init=False)
    dense: bool = field(default=False, init=False)
    _rest: int = field(default=0, init=False)  # the walks before jumps are tried again

    def __attrs_post_init__(self) -> None:
        self.jumps = min(FEWEST_JUMPS, self.most_jumps)
        self.topics = min(FEWEST_TOPICS, self.most)

    @property
    def most_jumps(self) -> int:
        """The most jumps of a statement: at least two, because the first one only reaches the start of the range."""
        return max(2, self.most // self.topics_per_jump)

    def jumped(self) -> None:
        """Take note that the jumps won."""
        self.jumps = min(2 * self.jumps, self.most_jumps)
        self.topics = min(FEWEST_TOPICS, self.most)

    def filled(self) -> None:
        """Take note that a part of a walk filled the read: matches are dense, so no jumps are tried."""
        self.dense = True
        self.jumps = self._rest = 0
        self.topics = min(FEWEST_TOPICS, self.most)

    def walked(self) -> None:
        """Take note that the walk won."""
        self.dense = False
        if self._rest:
            self._rest -= 1
        elif self.topics == self.most and self.jumps:
            self._rest = WALKS_WITHOUT_JUMPS
        self.jumps = 0 if self._rest else min(FEWEST_JUMPS, self.most_jumps)
        self.topics = min(2 * self.topics, self.most)
