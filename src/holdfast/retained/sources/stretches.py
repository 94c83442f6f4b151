"""What a survey has found out about the topics so far, as stretches in topic order. Pure.

How it works. A survey judges the publishers of all retained messages in topic order. It notes only where it withholds
messages: a *withheld stretch* begins behind one topic and ends with another. All other topics up to the position of the
survey are *clear*: their messages need no look at their publishers.

    topics           a    b    c    d    e    f    g        the survey is at f
    judged           yes  yes  no   no   yes  yes
    stretches        .... a    (b .. d]       e    f|       g is not surveyed yet

A replay that reads behind ``a`` reads the messages up to ``b`` as they are. From there up to ``d`` it looks at each
publisher, then reads as they are again up to ``f``. Each look asks the rules anew, so a message in a withheld stretch
whose publisher has changed is delivered if the new publisher may retain it.
"""

from __future__ import annotations

from bisect import bisect_left

from attrs import frozen


@frozen
class Stretch:
    """The topics from a position up to and including ``until`` (None: to the end).

    ``looked`` tells that each message in it has to be judged by its publisher.
    """

    looked: bool
    until: str | None = None


#: all topics, without and with a look at each publisher
CLEAR, LOOKED = Stretch(False), Stretch(True)


class Stretches:
    """The withheld stretches, and how far the survey is. Topics are added in their order."""

    def __init__(self) -> None:
        #: The last topic that was surveyed; "" for none, None for all topics, also for those that come later.
        self.surveyed: str | None = ""
        self._before: list[str] = []
        self._last: list[str] = []

    def withhold(self, before: str, last: str) -> None:
        """Add a stretch behind the topic ``before`` up to ``last``. It may follow the last one without a gap."""
        if self._last and before <= self._last[-1]:
            self._last[-1] = last
        else:
            self._before.append(before)
            self._last.append(last)

    def at(self, low: str) -> Stretch:
        """Return the stretch of the topics from ``low`` on."""
        number = bisect_left(self._last, low)
        if number < len(self._last):
            before = self._before[number]
            return Stretch(True, self._last[number]) if before < low or not before else Stretch(False, before)
        if self.surveyed is None or (self.surveyed and low <= self.surveyed):
            return Stretch(False, self.surveyed)
        return LOOKED

    def __len__(self) -> int:
        return len(self._last)
