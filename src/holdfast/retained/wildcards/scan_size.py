"""How far one statement goes while it searches for what matches a Topic Filter. Pure."""

from __future__ import annotations

from attrs import define, field

#: Jumps of a first attempt: few, for it costs time to find out that walking is better.
FEWEST_JUMPS = 8
#: Topics walked after a first attempt.
FEWEST_TOPICS = 1024


@define
class Stride:
    """Jumping over what cannot match pays where a jump gains at least ``par`` topics; else, what is there is walked.

    Each way goes twice as far each time it turns out to be the better one, so that neither is held on to where the
    other is better by more than it has gained. No statement walks more than ``most`` topics, or jumps for longer than
    that takes.
    """

    par: int
    most: int
    jumps: int = field(init=False)
    topics: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.jumps = min(FEWEST_JUMPS, self.most_jumps)
        self.topics = min(FEWEST_TOPICS, self.most)

    @property
    def most_jumps(self) -> int:
        """The most jumps of a statement; with fewer than two, nothing would be gained."""
        return max(2, self.most // self.par)

    def jumped(self) -> None:
        """Go on after jumps that were worth it."""
        self.jumps = min(2 * self.jumps, self.most_jumps)
        self.topics = min(FEWEST_TOPICS, self.most)

    def filled(self) -> None:
        """Go on after a walk of which a part was enough: matches are so dense that no jump need be tried."""
        self.jumps = 0
        self.topics = min(FEWEST_TOPICS, self.most)

    def walked(self) -> None:
        """Go on after a walk."""
        self.jumps = min(FEWEST_JUMPS, self.most_jumps)
        self.topics = min(2 * self.topics, self.most)
